#include "server/http/cors.h"

#include <algorithm>
#include <utility>

#include "server/concat.h"

namespace refrain::server::http {
namespace {

constexpr std::string_view kSeparators = " ,\t";

// scheme://host[:port], nothing behind it: browsers send exactly this, in lower case.
bool IsOrigin(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos || scheme == 0 || scheme + 3 == text.size()) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c > 0x20 && c < 0x7f && !(c >= 'A' && c <= 'Z'); }) &&
         text.find('/', scheme + 3) == std::string_view::npos;
}

}  // namespace

absl::StatusOr<CorsPolicy> CorsPolicy::Parse(std::string_view origins) {
  CorsPolicy policy;
  while (!origins.empty()) {
    const size_t end = std::min(origins.find_first_of(kSeparators), origins.size());
    const std::string_view one = origins.substr(0, end);
    origins.remove_prefix(std::min(end + 1, origins.size()));
    if (one.empty()) continue;
    if (one == "*") {
      policy.any_ = true;
    } else if (IsOrigin(one)) {
      policy.origins_.emplace_back(one);
    } else {
      return absl::InvalidArgumentError(Concat(
          "\"", one, "\" is not an origin; expected scheme://host[:port] in lower case, or *"));
    }
  }
  return policy;
}

bool CorsPolicy::Allows(std::string_view origin) const {
  return !origin.empty() &&
         (any_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end());
}

Headers CorsPolicy::AnswerHeaders(const Request& request) const {
  if (!enabled()) return {};
  const std::string_view origin = request.Header("origin");
  Headers headers;
  if (!any_) headers.emplace_back("Vary", "Origin");
  if (Allows(origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", any_ ? "*" : std::string(origin));
    headers.emplace_back("Access-Control-Expose-Headers",
                         "X-Request-Id, Retry-After, X-Should-Retry");
  }
  return headers;
}

std::unique_ptr<Reply> CorsPolicy::PreflightOrNull(const Request& request) const {
  if (request.method != "OPTIONS" || !Allows(request.Header("origin")) ||
      request.Header("access-control-request-method").empty()) {
    return nullptr;
  }
  ResponseHead head;
  head.headers = {{"Access-Control-Allow-Methods", "GET, POST"}, {"Access-Control-Max-Age", "600"}};
  // "*" would not cover Authorization. Clients send headers of their own, so all they ask for are
  // allowed; what was parsed as a header's value has no line break.
  const std::string_view asked = request.Header("access-control-request-headers");
  if (!asked.empty()) head.headers.emplace_back("Access-Control-Allow-Headers", asked);
  return MakeReply(std::move(head), "");
}

}  // namespace refrain::server::http
