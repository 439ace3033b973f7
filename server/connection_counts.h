#ifndef REFRAIN_SERVER_CONNECTION_COUNTS_H_
#define REFRAIN_SERVER_CONNECTION_COUNTS_H_

#include <atomic>
#include <cstdint>

namespace refrain::server {

// What became of the connections to one front end. Any thread.
struct ConnectionCounts {
  std::atomic<int64_t> accepted{0};
  std::atomic<int64_t> refused{0};  // beyond the bound on connections
  std::atomic<int64_t> evicted{0};  // idle ones that were ended for others, at that bound
  // Times that one could not be accepted for want of files or memory; it waits, or is closed where
  // the memory was wanted behind accept().
  std::atomic<int64_t> accept_errors{0};
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_CONNECTION_COUNTS_H_
