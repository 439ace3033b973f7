#include "server/hold_bytes.h"

#include "engine/retry_after.h"
#include "server/concat.h"

namespace refrain::server {

absl::Status HoldBytes(size_t bytes, HeldBytes* held) {
  if (held->GrowTo(bytes)) return absl::OkStatus();
  const size_t most = held->budget().bytes();
  if (bytes > most) {
    return absl::InvalidArgumentError(Concat("the request, or its answer, takes ", bytes,
                                             " bytes of memory or more; at most ", most,
                                             " are held (limits.bodies_bytes)"));
  }
  return engine::WithRetryAfter(
      absl::UnavailableError(Concat("the server holds as many bytes of requests and answers as it "
                                    "may, in all or of one key: ",
                                    most, " (limits.bodies_bytes)")),
      1);
}

}  // namespace refrain::server
