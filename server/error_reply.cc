#include "server/error_reply.h"

#include <string>

namespace refrain::server {

http::ResponseHead ErrorHead(const ApiError& error) {
  http::ResponseHead head;
  head.status = error.http_status;
  if (error.retry_after_s.has_value()) {
    head.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  }
  // OpenAI's clients repeat a 408 by themselves, for the whole time that is over; they know this.
  // Sent again it would take as long, or not be read again.
  if (error.http_status == 408 || error.code == "answer_not_read")
    head.headers.emplace_back("X-Should-Retry", "false");
  if (error.http_status == 401) {
    head.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"refrain\"");
  }
  return head;
}

std::unique_ptr<http::Reply> MakeErrorReply(const absl::Status& status) {
  const ApiError error = ApiErrorFromStatus(status);
  return http::MakeReply(ErrorHead(error), ErrorBody(error));
}

}  // namespace refrain::server
