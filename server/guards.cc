#include "server/guards.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/template_file.h"
#include "server/access/http_access.h"
#include "server/concat.h"

namespace refrain::server {

absl::StatusOr<Guards> MakeGuards(const Config& config, bool serves) {
  Guards guards;
  absl::StatusOr<std::unique_ptr<access::KeyGate>> gate = access::KeyGate::Load(
      {.keys_file = config.text("auth.keys_file"),
       .admin_keys_file = config.text("auth.admin_keys_file"),
       .requests = static_cast<int32_t>(config.integer("limits.per_key_requests")),
       .tokens_per_s = config.seconds("limits.per_key_tokens_per_s")});
  if (!gate.ok()) return gate.status();
  guards.gate = *std::move(gate);
  const std::string& log_path = config.text("log.requests_file");
  if (!log_path.empty() && !serves) {
    if (absl::Status status = RequestLog::Check(log_path); !status.ok()) return status;
  } else if (!log_path.empty()) {
    absl::StatusOr<std::unique_ptr<RequestLog>> log = RequestLog::Open(log_path);
    if (!log.ok()) return log.status();
    guards.request_log = *std::move(log);
  }
  if (const std::string& path = config.text("tls.cert_file"); !path.empty()) {
    auto tls = http::TlsCertificate::Load(path, config.text("tls.key_file"));
    if (!tls.ok()) return tls.status();
    guards.tls = *std::move(tls);
  }
  absl::StatusOr<http::CorsPolicy> cors = http::CorsPolicy::Parse(config.text("http.cors_origins"));
  if (!cors.ok()) return cors.status();
  guards.cors = *std::move(cors);
  const auto address = ParseListenAddress(config.text("server.http_listen"));
  absl::StatusOr<access::WebPages> pages =
      access::WebPages::Make({.cors = guards.cors,
                              .listen_host = address.ok() ? address->host : "",
                              .allowed_hosts = config.text("http.allowed_hosts")});
  if (!pages.ok()) return pages.status();
  if (config.text("auth.keys_file").empty()) guards.pages = *std::move(pages);
  if (const std::string& path = config.text("model.chat_template_file"); !serves && !path.empty()) {
    if (absl::Status status = engine::CheckTemplateFile(path); !status.ok()) return status;
  }
  return guards;
}

void LogKeys(const Config& config, const access::KeyGate& gate, Log* log) {
  const access::KeyCounts keys = gate.num_keys();
  const size_t all = keys.inference + keys.admin;
  if (all > 0) log->Info("keys", {{"count", static_cast<int64_t>(all)}});
  const auto warn_if_none = [&](std::string_view option, size_t count, std::string_view who) {
    if (config.text(option).empty() || count > 0) return;
    log->Warn(Concat(option, " holds no key: nobody may ", who));
  };
  warn_if_none("auth.keys_file", keys.inference, "call");
  warn_if_none("auth.admin_keys_file", keys.admin, "administer");
}

std::function<std::unique_ptr<http::Reply>(const http::Request& without_body)> HttpFilter(
    const Guards& guards, Log* log) {
  const auto told = std::make_shared<std::atomic<bool>>(false);
  return [&guards, log, told](const http::Request& request) -> std::unique_ptr<http::Reply> {
    if (guards.pages.has_value()) {
      const absl::Status status = guards.pages->Check(request);
      if (!status.ok()) {
        if (!told->exchange(true)) {
          log->Warn("a request is refused as one that a web page causes; not logged again",
                    {{"request", request.id}, {"status", std::string(status.message())}});
        }
        return access::RefuseWebPage(status, request);
      }
    }
    return access::RefuseUnlessAllowed(*guards.gate, request);
  };
}

}  // namespace refrain::server
