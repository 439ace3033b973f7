#include "server/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "server/concat.h"
#include "server/open_files.h"

namespace refrain::server {
namespace {

// What ListenAtAll tells apart by the code: NOT_FOUND, an address that this machine does not have;
// ALREADY_EXISTS, a port that is taken.
absl::Status Failed(std::string_view call) {
  const int error = errno;
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) code = absl::StatusCode::kNotFound;
  if (error == EADDRINUSE) code = absl::StatusCode::kAlreadyExists;
  return absl::Status(code, Concat(call, ": ", SystemErrorText(error)));
}

void SetPort(SocketAddress* address, uint16_t port) {
  if (address->storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address->storage).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address->storage).sin_port = htons(port);
  }
}

uint16_t PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

absl::StatusOr<ListeningSocket> ListenAtOne(const SocketAddress& address, bool one_of_several) {
  const int family = address.storage.ss_family;
  ListeningSocket listening(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), family,
                            0);
  const int socket = listening.get();
  if (socket < 0) return Failed("socket");
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // IPv4 has a socket of its own there.
  if (one_of_several && family == AF_INET6) {
    ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  }
  const auto* const name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::bind(socket, name, address.bytes) != 0) return Failed("bind");
  if (::listen(socket, SOMAXCONN) != 0) return Failed("listen");
  sockaddr_storage own{};
  socklen_t bytes = sizeof(own);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
    return Failed("getsockname");
  }
  return ListeningSocket(listening.Release(), family, PortOf(own));
}

absl::StatusOr<std::vector<ListeningSocket>> ListenOnce(std::span<const SocketAddress> addresses,
                                                        uint16_t port) {
  std::vector<ListeningSocket> sockets;
  absl::Status absent;
  for (SocketAddress address : addresses) {
    SetPort(&address, port);
    absl::StatusOr<ListeningSocket> socket = ListenAtOne(address, addresses.size() > 1);
    if (absl::IsNotFound(socket.status())) {
      absent = socket.status();
      continue;
    }
    if (!socket.ok()) return socket.status();
    port = socket->port();
    sockets.push_back(*std::move(socket));
  }
  if (sockets.empty()) return absent;
  return sockets;
}

}  // namespace

ListeningSocket& ListeningSocket::operator=(ListeningSocket&& other) noexcept {
  std::swap(socket_, other.socket_);
  family_ = other.family_;
  port_ = other.port_;
  return *this;
}

ListeningSocket::~ListeningSocket() {
  if (socket_ >= 0) ::close(socket_);
}

absl::StatusOr<std::vector<SocketAddress>> AddressesOf(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    return absl::UnavailableError(Concat("unknown host: ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* found = list; found != nullptr; found = found->ai_next) {
    if (found->ai_family != AF_INET && found->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
    address.bytes = found->ai_addrlen;
    const auto same = [&](const SocketAddress& other) {
      return other.bytes == address.bytes &&
             std::memcmp(&other.storage, &address.storage, address.bytes) == 0;
    };
    if (std::none_of(addresses.begin(), addresses.end(), same)) addresses.push_back(address);
  }
  if (addresses.empty()) return absl::UnavailableError("the host has no address for TCP");
  return addresses;
}

absl::StatusOr<std::vector<ListeningSocket>> ListenAtAll(std::span<const SocketAddress> addresses,
                                                         uint16_t port) {
  // A port that is free at the first address may be taken at the next.
  constexpr int kMostTries = 16;
  absl::StatusOr<std::vector<ListeningSocket>> sockets = ListenOnce(addresses, port);
  for (int i = 1; i < kMostTries && port == 0 && absl::IsAlreadyExists(sockets.status()); ++i) {
    sockets = ListenOnce(addresses, port);
  }
  return sockets;
}

absl::StatusOr<std::vector<ListeningSocket>> ListenAt(const std::string& host, uint16_t port) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses = AddressesOf(host);
  if (!addresses.ok()) return addresses.status();
  return ListenAtAll(*addresses, port);
}

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

}  // namespace refrain::server
