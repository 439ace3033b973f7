#ifndef REFRAIN_SERVER_WITH_THREADS_H_
#define REFRAIN_SERVER_WITH_THREADS_H_

#include <functional>

#include "absl/status/status.h"

namespace refrain::server {

// What `start` returns, which starts threads. Where the system refuses one, which std::thread
// throws, RESOURCE_EXHAUSTED names the limits that there are: an operator knows one of them. The
// same where it refuses memory, or a file that std::system_error tells of. Any thread.
absl::Status WithThreads(const std::function<absl::Status()>& start);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_WITH_THREADS_H_
