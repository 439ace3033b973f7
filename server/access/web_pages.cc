#include "server/access/web_pages.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "server/access/http_access.h"
#include "server/concat.h"
#include "server/error_reply.h"
#include "server/generation_note.h"

namespace refrain::server::access {
namespace {

constexpr std::string_view kSeparators = " ,\t";
constexpr size_t kShownBytes = 200;  // of a header

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// The host of "host:port" or "[address]:port": in lower case, without the dot of the DNS root.
std::string HostOf(std::string_view authority) {
  if (authority.starts_with('[')) {
    authority = authority.substr(1, std::min(authority.find(']'), authority.size()) - 1);
  } else if (std::count(authority.begin(), authority.end(), ':') <= 1) {
    authority = authority.substr(0, authority.find(':'));
  }
  if (authority.ends_with('.')) authority.remove_suffix(1);
  return absl::AsciiStrToLower(View(authority));
}

bool IsAddress(const std::string& host) {
  in6_addr address;
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// The public DNS has no names below .internal (ICANN, 2024), so that no web page can have one of
// its own: containers reach their host as host.docker.internal.
bool IsPrivate(std::string_view host) { return host.ends_with(".internal"); }

bool IsHostName(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '.' || c == '-' || c == '_';
  });
}

}  // namespace

bool IsLoopback(std::string_view host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

absl::StatusOr<WebPages> WebPages::Make(Options options) {
  std::string_view names = options.allowed_hosts;
  WebPages pages(options);
  bool any = false;
  while (!names.empty()) {
    const size_t end = std::min(names.find_first_of(kSeparators), names.size());
    const std::string_view one = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    if (one.empty()) continue;
    if (one == "*") {
      any = true;
    } else if (IsHostName(one)) {
      pages.hosts_.emplace_back(one);
    } else {
      return absl::InvalidArgumentError(
          Concat("config key \"http.allowed_hosts\": \"", one,
                 "\" is not a host name; expected one in lower case without a port, or *"));
    }
  }
  pages.checks_hosts_ = !any && (IsLoopback(options.listen_host) || !pages.hosts_.empty());
  pages.hosts_.push_back(HostOf(options.listen_host));
  return pages;
}

absl::Status WebPages::Check(const http::Request& request) const {
  if (!AreaOf(request.path).has_value()) return absl::OkStatus();
  const std::string_view host = request.Header("host");
  if (absl::Status status = CheckHost(host); !status.ok()) return status;
  return CheckOrigin(request.Header("origin"), host);
}

absl::Status WebPages::CheckHost(std::string_view header) const {
  // Browsers always send one.
  if (!checks_hosts_ || header.empty()) return absl::OkStatus();
  const std::string host = HostOf(header);
  if (host == "localhost" || host.ends_with(".localhost") || IsAddress(host) || IsPrivate(host) ||
      std::find(hosts_.begin(), hosts_.end(), host) != hosts_.end()) {
    return absl::OkStatus();
  }
  return WithCode(absl::PermissionDeniedError(
                      Concat("the header Host is \"", header.substr(0, kShownBytes),
                             "\"; this server, which asks for no API key, answers to localhost, to "
                             "IP addresses and to the names in http.allowed_hosts (behind a proxy: "
                             "the name that its clients use)")),
                  "host_not_allowed");
}

absl::Status WebPages::CheckOrigin(std::string_view origin, std::string_view host) const {
  if (origin.empty() || options_.cors.Allows(origin)) return absl::OkStatus();
  const size_t scheme = origin.find("://");
  const bool is_own = scheme != std::string_view::npos &&
                      absl::EqualsIgnoreCase(View(origin.substr(scheme + 3)), View(host));
  if (is_own) return absl::OkStatus();
  return WithCode(absl::PermissionDeniedError(
                      Concat("pages of the origin \"", origin.substr(0, kShownBytes),
                             "\" may not use this server, which asks for no API key: the origin is "
                             "not the server's own (the header Host is \"",
                             host.substr(0, kShownBytes), "\") and not in http.cors_origins")),
                  "origin_not_allowed");
}

std::unique_ptr<http::Reply> RefuseWebPage(const absl::Status& status,
                                           const http::Request& request) {
  if (request.notes != nullptr) AppendRefusal(status, &request.notes->details);
  return MakeErrorReply(status);
}

}  // namespace refrain::server::access
