#ifndef REFRAIN_TOOLS_LOADGEN_CONNECTING_H_
#define REFRAIN_TOOLS_LOADGEN_CONNECTING_H_

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace refrain::loadgen {

using SteadyTime = std::chrono::steady_clock::time_point;
using Endpoint = boost::asio::ip::tcp::endpoint;

SteadyTime InSeconds(double seconds);

// A socket that is closed with this object.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket(const Socket&) = delete;

  int fd() const { return fd_; }

 private:
  int fd_;
};

// A host's addresses, in the order in which to try them; UNAVAILABLE when it has none. How long
// that takes is the system's resolver's affair.
absl::StatusOr<std::vector<Endpoint>> AddressesOf(const std::string& host, const std::string& port);

struct Connected {
  size_t address = 0;  // its index
  Socket socket;       // does not block
};

// Connects to the first of the addresses that takes a connection by the deadline. Each may use its
// part of the time that is left: one that does not answer, as of a name that has a second one where
// nobody listens, leaves some to the others. UNAVAILABLE says why the last one did not.
absl::StatusOr<Connected> ConnectToFirst(const std::vector<Endpoint>& addresses,
                                         SteadyTime deadline);

// Waits until poll tells of one of `events`, or of the socket's end; false from the deadline on.
bool WaitForSocket(int fd, short events, SteadyTime deadline);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_CONNECTING_H_
