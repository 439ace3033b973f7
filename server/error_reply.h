#ifndef REFRAIN_SERVER_ERROR_REPLY_H_
#define REFRAIN_SERVER_ERROR_REPLY_H_

#include <memory>

#include "absl/status/status.h"
#include "server/http/message.h"
#include "server/status_mapping.h"

namespace refrain::server {

// Status line and headers of an answer that tells of an error: Retry-After where the client may
// come back, X-Should-Retry where it had its time, WWW-Authenticate where a key is missing. Pure;
// any thread.
http::ResponseHead ErrorHead(const ApiError& error);

// The whole answer; `status` is not OK.
std::unique_ptr<http::Reply> MakeErrorReply(const absl::Status& status);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_ERROR_REPLY_H_
