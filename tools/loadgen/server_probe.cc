#include "tools/loadgen/server_probe.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tools/loadgen/http_fetch.h"
#include "tools/loadgen/openai_wire.h"

namespace refrain::loadgen {

absl::StatusOr<std::string> AskForModel(const HttpTarget& target, const std::string& api_key) {
  const auto reply = Fetch(target, {.path = "/v1/models", .api_key = api_key});
  if (!reply.ok()) return reply.status();
  if (reply->status != 200) {
    return absl::UnavailableError(absl::StrCat("/v1/models answers with status ", reply->status,
                                               ": ", ErrorMessage(reply->body)));
  }
  return FirstModel(reply->body);
}

absl::StatusOr<bool> TakesTokenIds(const HttpTarget& target, const std::string& api_key,
                                   const std::string& model, int32_t token_id) {
  const std::string body = absl::StrCat("{\"model\":", QuotedJson(model), ",\"prompt\":[", token_id,
                                        "],\"max_tokens\":1}");
  constexpr double kPatienceS = 60;  // the first request of a server may take its time
  const auto reply = Fetch(target, {.method = "POST",
                                    .path = "/v1/completions",
                                    .body = body,
                                    .api_key = api_key,
                                    .timeout_s = kPatienceS});
  if (!reply.ok()) return reply.status();
  if (reply->status == 200) return true;
  // What a server says that knows no such prompt. Others, a wrong key or a full queue, say nothing
  // about prompts.
  if (reply->status == 400 || reply->status == 422) return false;
  return absl::UnavailableError(absl::StrCat("/v1/completions answers with status ", reply->status,
                                             ": ", ErrorMessage(reply->body)));
}

absl::StatusOr<std::string> ReadKey(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
  }
  std::getline(file, line);
  const std::string key(absl::StripAsciiWhitespace(line));
  if (key.empty())
    return absl::InvalidArgumentError(absl::StrCat(path, ": its first line is empty"));
  return key;
}

}  // namespace refrain::loadgen
