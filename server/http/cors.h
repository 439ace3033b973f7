#ifndef REFRAIN_SERVER_HTTP_CORS_H_
#define REFRAIN_SERVER_HTTP_CORS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/message.h"

namespace refrain::server::http {

// Which web pages may call the server from a browser (the CORS protocol of the Fetch standard).
// Without origins, the default, no answer has any of its headers and browsers refuse all. Keys
// travel in the Authorization header, so cookies ("credentials") are never allowed.
// Immutable; any thread.
class CorsPolicy {
 public:
  CorsPolicy() = default;
  // Origins such as "https://chat.example.com:8443" with spaces or commas between, or "*" for all;
  // "" = off. INVALID_ARGUMENT names the one that is not an origin.
  static absl::StatusOr<CorsPolicy> Parse(std::string_view origins);

  bool enabled() const { return any_ || !origins_.empty(); }
  bool Allows(std::string_view origin) const;  // the value of a header Origin

  // What every answer to `request` carries.
  Headers AnswerHeaders(const Request& request) const;

  // The answer to a browser that asks whether a page of an allowed origin may send what it is
  // about to; null for every other request.
  std::unique_ptr<Reply> PreflightOrNull(const Request& request) const;

 private:
  bool any_ = false;
  std::vector<std::string> origins_;
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_CORS_H_
