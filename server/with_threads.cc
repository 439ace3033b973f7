#include "server/with_threads.h"

#include <new>
#include <system_error>

#include "server/concat.h"
#include "server/open_files.h"

namespace refrain::server {

absl::Status WithThreads(const std::function<absl::Status()>& start) {
  try {
    return start();
  } catch (const std::system_error& refused) {
    const int error = refused.code().default_error_condition().value();
    if (IsFileRefused(error)) return absl::ResourceExhaustedError(SystemErrorText(error));
    return absl::ResourceExhaustedError(
        Concat("the system refuses a thread (", refused.code().message(),
               "): ulimit -u, systemd's TasksMax, a container's limit of pids or its memory is too "
               "low"));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "the system refuses memory: ulimit -v is too low, or vm.overcommit_memory is 2");
  }
}

}  // namespace refrain::server
