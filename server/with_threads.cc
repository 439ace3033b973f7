#include "server/with_threads.h"

#include <new>
#include <system_error>

#include "server/concat.h"

namespace refrain::server {

absl::Status WithThreads(const std::function<absl::Status()>& start) {
  try {
    return start();
  } catch (const std::system_error& refused) {
    if (refused.code() == std::errc::too_many_files_open ||
        refused.code() == std::errc::too_many_files_open_in_system) {
      return absl::ResourceExhaustedError(
          Concat("the system refuses a file (", refused.code().message(),
                 "): ulimit -n, systemd's LimitNOFILE or fs.file-max is too low"));
    }
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
