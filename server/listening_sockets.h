#ifndef REFRAIN_SERVER_LISTENING_SOCKETS_H_
#define REFRAIN_SERVER_LISTENING_SOCKETS_H_

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace refrain::server {

// A TCP socket that listens and does not block. Owns it; move-only.
class ListeningSocket {
 public:
  ListeningSocket(int socket, int family, uint16_t port)
      : socket_(socket), family_(family), port_(port) {}
  ListeningSocket(ListeningSocket&& other) noexcept
      : socket_(other.Release()), family_(other.family_), port_(other.port_) {}
  ListeningSocket& operator=(ListeningSocket&& other) noexcept;
  ~ListeningSocket();

  int get() const { return socket_; }
  int family() const { return family_; }  // AF_INET or AF_INET6
  uint16_t port() const { return port_; }
  // The caller owns it from now on.
  int Release() { return std::exchange(socket_, -1); }

 private:
  int socket_;
  int family_;
  uint16_t port_;
};

// A socket for each address of `host`, which is an address or a name, for clients try a name's
// addresses in an order of their own ("localhost" is often two). One at least, and all on one port,
// also where 0 asks for any free one. Any thread.
//
// Failure, with the reason: UNAVAILABLE, NOT_FOUND of an address that is not this machine's,
// ALREADY_EXISTS of a port that is taken.
absl::StatusOr<std::vector<ListeningSocket>> ListenAt(const std::string& host, uint16_t port);

// Whether accept() failed with `error` because there are no files or no memory: the connection
// waits in the kernel, and the next try fails, too, until there are.
bool IsShortage(int error);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

// The same of `addresses`, one at least, whose ports do not count. Those that this machine does not
// have (no IPv6, say) are left out as long as another is there; one whose port is taken is an
// error.
absl::StatusOr<std::vector<ListeningSocket>> ListenAtAll(std::span<const SocketAddress> addresses,
                                                         uint16_t port);

// Those of a name or an address, each once.
absl::StatusOr<std::vector<SocketAddress>> AddressesOf(const std::string& host);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_LISTENING_SOCKETS_H_
