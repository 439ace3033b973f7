#include "server/with_threads.h"

#include <system_error>

#include "server/concat.h"

namespace refrain::server {

absl::Status WithThreads(const std::function<absl::Status()>& start) {
  try {
    return start();
  } catch (const std::system_error& refused) {
    return absl::ResourceExhaustedError(
        Concat("the system refuses a thread (", refused.code().message(),
               "): ulimit -u, systemd's TasksMax, a container's limit of pids or its memory is too "
               "low"));
  }
}

}  // namespace refrain::server
