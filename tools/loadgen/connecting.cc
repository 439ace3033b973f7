#include "tools/loadgen/connecting.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace refrain::loadgen {
namespace {

using Clock = std::chrono::steady_clock;

// 0, or why there is no connection (errno).
int ConnectBy(SteadyTime deadline, int fd, const Endpoint& address) {
  if (::connect(fd, address.data(), static_cast<socklen_t>(address.size())) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!WaitForSocket(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

SteadyTime InSeconds(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<std::vector<Endpoint>> AddressesOf(const std::string& host,
                                                  const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (code != 0) {
    return absl::UnavailableError(absl::StrCat("no address of ", host, ": ", ::gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  std::vector<Endpoint> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Endpoint& address = addresses.emplace_back();
    std::memcpy(address.data(), entry->ai_addr, entry->ai_addrlen);
    address.resize(entry->ai_addrlen);
  }
  if (addresses.empty()) return absl::UnavailableError(absl::StrCat("no address of ", host));
  return addresses;
}

absl::StatusOr<Connected> ConnectToFirst(const std::vector<Endpoint>& addresses,
                                         SteadyTime deadline) {
  int why = 0;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const SteadyTime now = Clock::now();
    const auto left = std::max(deadline - now, Clock::duration::zero());
    const Endpoint& address = addresses[i];
    Socket socket(::socket(address.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                           address.protocol().protocol()));
    why = socket.fd() < 0 ? errno
                          : ConnectBy(now + left / static_cast<int>(addresses.size() - i),
                                      socket.fd(), address);
    if (why == 0) return Connected{i, std::move(socket)};
  }
  return absl::UnavailableError(absl::StrCat("cannot connect: ", std::strerror(why)));
}

bool WaitForSocket(int fd, short events, SteadyTime deadline) {
  constexpr int64_t kMostMs = 1 << 30;
  pollfd waits = {.fd = fd, .events = events};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;  // also where something is there
    const int told = ::poll(&waits, 1, static_cast<int>(std::min(left.count(), kMostMs)));
    if (told > 0) return true;
    if (told < 0 && errno != EINTR) return false;
  }
}

}  // namespace refrain::loadgen
