#ifndef REFRAIN_TOOLS_LOADGEN_HTTP_FETCH_H_
#define REFRAIN_TOOLS_LOADGEN_HTTP_FETCH_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/loadgen/http_backend.h"

namespace refrain::loadgen {

struct HttpReply {
  int status = 0;
  std::string body;
};

struct HttpQuestion {
  std::string_view method = "GET";
  std::string_view path;  // behind the target's own
  std::string_view body;
  std::string_view api_key;
  double timeout_s = 10;  // from connecting to the answer's last byte
};

// Asks and waits for the whole answer, on a connection of its own: for what is asked beside the
// load (models, metrics). Any thread. UNAVAILABLE when there is no connection, it breaks or the
// time is over, INVALID_ARGUMENT when the answer is no HTTP.
absl::StatusOr<HttpReply> Fetch(const HttpTarget& target, const HttpQuestion& question);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_HTTP_FETCH_H_
