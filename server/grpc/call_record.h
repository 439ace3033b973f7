#ifndef REFRAIN_SERVER_GRPC_CALL_RECORD_H_
#define REFRAIN_SERVER_GRPC_CALL_RECORD_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace refrain::server::rpc {

// One call of our own services that is over. A value.
struct CallRecord {
  std::string_view path;        // "/refrain.v1.Inference/Generate"; lives as long as the process
  bool server_streams = false;  // the answer is a stream of messages
  std::string request_id;
  std::string principal;  // the name of the caller's key
  std::string details;    // further members of a JSON object, for the request log
  // As the caller sees it; CANCELLED when it went away, DEADLINE_EXCEEDED when its own deadline
  // ended the call.
  absl::StatusCode code = absl::StatusCode::kOk;
  int http_status = 200;  // what HTTP answers in such a case; 499: it went away
  bool complete = false;  // nobody went away before the end
  size_t request_bytes = 0;
  size_t response_bytes = 0;  // of messages
  double seconds = 0;         // from the whole request being there to the end
};

// Told of every call when it is over, by a thread that it must not hold up. Calls come from several
// threads at once.
using CallObserver = std::function<void(const CallRecord&)>;

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_CALL_RECORD_H_
