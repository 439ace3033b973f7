#include "server/grpc/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "server/concat.h"

namespace refrain::server::rpc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAcceptPauseMs = 50;  // after running out of files
// Beyond the bound so much time passes between two looks at which connections have been closed.
constexpr std::chrono::milliseconds kRecount{5};
// Bytes that the other side has not acknowledged for so long end a connection.
constexpr int kUserTimeoutMs = 20'000;

std::string ErrorText(int error) { return std::generic_category().message(error); }

ino_t InodeOf(int file) {
  struct stat about {};
  return ::fstat(file, &about) == 0 ? about.st_ino : 0;
}

void Prepare(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& host, uint16_t port) {
  const auto failed = [&](std::string_view why) {
    return absl::UnavailableError(Concat("cannot listen on ", host, ":", port, " for gRPC: ", why));
  };
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  auto sockets = ListenAt(bracketed ? host.substr(1, host.size() - 2) : host, port);
  if (!sockets.ok()) return failed(std::string(sockets.status().message()));
  const int stop_event = ::eventfd(0, EFD_CLOEXEC);
  if (stop_event < 0) return failed(ErrorText(errno));
  return std::unique_ptr<Listener>(new Listener(*std::move(sockets), stop_event));
}

Listener::Listener(std::vector<ListeningSocket> sockets, int stop_event)
    : sockets_(std::move(sockets)), stop_event_(stop_event), port_(sockets_[0].port()) {}

Listener::~Listener() {
  Stop();
  ::close(stop_event_);
}

void Listener::OpenConnections::Add(int socket) { open_.push_back({socket, InodeOf(socket)}); }

bool Listener::OpenConnections::Full(int most) {
  if (open_.size() < static_cast<size_t>(most)) return false;
  if (const auto now = Clock::now(); now - counted_ >= kRecount) {
    counted_ = now;
    Recount();
  }
  return open_.size() >= static_cast<size_t>(most);
}

void Listener::OpenConnections::Recount() {
  std::erase_if(open_, [](const Entry& one) { return InodeOf(one.socket) != one.inode; });
}

bool Listener::OpenConnections::WaitUntilNone(Clock::time_point deadline) {
  for (Recount(); !open_.empty(); Recount()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + kRecount));
  }
  return true;
}

void Listener::OpenConnections::ShutDown() {
  // Looked at one by one: a number that gRPC gives back now should not be another's socket.
  for (const Entry& one : open_) {
    if (InodeOf(one.socket) == one.inode) ::shutdown(one.socket, SHUT_RDWR);
  }
}

bool Listener::WaitUntilNoConnections(Clock::time_point deadline) {
  return open_.WaitUntilNone(deadline);
}

void Listener::ShutDownConnections() { open_.ShutDown(); }

void Listener::Start(int max_connections, ConnectionCounts* counts,
                     std::function<void(int socket)> take) {
  thread_ = std::thread([this, max_connections, counts, take = std::move(take)] {
    Accept(max_connections, counts, take);
  });
}

void Listener::Stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_event_, &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  sockets_.clear();
}

bool Listener::WaitForStop(int most_ms) const {
  pollfd stop = {.fd = stop_event_, .events = POLLIN, .revents = 0};
  return ::poll(&stop, 1, most_ms) > 0;
}

void Listener::Accept(int max_connections, ConnectionCounts* counts,
                      const std::function<void(int socket)>& take) {
  std::vector<pollfd> files = {{stop_event_, POLLIN, 0}};
  for (const ListeningSocket& socket : sockets_) files.push_back({socket.get(), POLLIN, 0});
  for (;;) {
    if (::poll(files.data(), files.size(), -1) < 0) continue;  // EINTR
    if (files[0].revents != 0) return;
    for (size_t i = 1; i < files.size(); ++i) {
      if (files[i].revents == 0) continue;
      const int socket = ::accept4(files[i].fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket < 0) {
        const bool out_of_files = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
        if (out_of_files && WaitForStop(kAcceptPauseMs)) return;
        continue;
      }
      if (open_.Full(max_connections)) {
        ++counts->refused;
        ::close(socket);
        continue;
      }
      ++counts->accepted;
      Prepare(socket);
      open_.Add(socket);
      take(socket);
    }
  }
}

}  // namespace refrain::server::rpc
