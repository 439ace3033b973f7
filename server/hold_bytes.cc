#include "server/hold_bytes.h"

#include "engine/retry_after.h"
#include "server/concat.h"

namespace refrain::server {

absl::Status HoldBytes(size_t bytes, HeldBytes* held) {
  if (held->GrowTo(bytes)) return absl::OkStatus();
  return engine::WithRetryAfter(
      absl::UnavailableError(Concat("the server holds as many bytes of requests and answers as it "
                                    "may, in all or of one key: ",
                                    held->budget().bytes(), " (limits.bodies_bytes)")),
      1);
}

}  // namespace refrain::server
