#include "server/grpc/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "server/concat.h"
#include "server/open_files.h"

#ifdef __SANITIZE_THREAD__
// A number is looked at while its owner may close it, which the inode tells: no race of ours.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:Listener::OpenConnections::"; }
#endif

namespace refrain::server::rpc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAcceptPauseMs = 50;  // after running out of files
// Beyond the bound so much time passes between two looks at which connections have been closed.
constexpr std::chrono::milliseconds kRecount{5};
// Of the time that a client has for what was written to it: how often is looked whether it takes
// it.
constexpr int kLooks = 14;

ino_t InodeOf(int file) {
  struct stat about {};
  return ::fstat(file, &about) == 0 ? about.st_ino : 0;
}

void Prepare(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Its owner reads the end and closes it, which sends a reset: the system would else go on to offer
// what nobody takes.
void Break(int socket) {
  const linger none = {.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
  ::shutdown(socket, SHUT_RDWR);
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
  if (stop_event < 0) return failed(SystemErrorText(errno));
  const int spare = ::fcntl(stop_event, F_DUPFD_CLOEXEC, 0);
  if (spare < 0) {
    const int error = errno;
    ::close(stop_event);
    return failed(SystemErrorText(error));
  }
  return std::unique_ptr<Listener>(new Listener(*std::move(sockets), stop_event, spare));
}

Listener::Listener(std::vector<ListeningSocket> sockets, int stop_event, int spare)
    : sockets_(std::move(sockets)),
      stop_event_(stop_event),
      port_(sockets_[0].port()),
      open_(stop_event, spare) {}

Listener::~Listener() {
  Stop();
  ::close(stop_event_);
}

Listener::OpenConnections::~OpenConnections() { ::close(spare_); }

void Listener::OpenConnections::Add(int socket, std::chrono::milliseconds patience) {
  open_.push_back({.socket = socket, .inode = InodeOf(socket), .watch = StallWatch(patience)});
}

void Listener::OpenConnections::EndStalled(Clock::time_point now) {
  Recount();
  for (Entry& one : open_) {
    const std::optional<SentBytes> sent = SentBytesOf(one.socket);
    if (!sent.has_value() || !one.watch.IsStalled(*sent, now)) continue;
    // Its number may be another's by now; what a number of our own stands for stays.
    if (::dup3(one.socket, spare_, O_CLOEXEC) < 0) continue;
    if (InodeOf(spare_) == one.inode) Break(spare_);
    ::dup3(idle_, spare_, O_CLOEXEC);
  }
}

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

void Listener::Start(int max_connections, ConnectionCounts* counts, Taking taking,
                     std::chrono::milliseconds patience) {
  thread_ = std::thread([this, max_connections, counts, taking = std::move(taking), patience] {
    Accept(max_connections, counts, taking, patience);
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

void Listener::Accept(int max_connections, ConnectionCounts* counts, const Taking& taking,
                      std::chrono::milliseconds patience) {
  const std::chrono::milliseconds look_period = patience / kLooks;
  Clock::time_point looked = Clock::now();
  std::vector<pollfd> files = {{stop_event_, POLLIN, 0}};
  for (const ListeningSocket& socket : sockets_) files.push_back({socket.get(), POLLIN, 0});
  for (;;) {
    const int most_ms = open_.empty() ? -1 : static_cast<int>(look_period.count());
    const int ready = ::poll(files.data(), files.size(), most_ms);
    if (const auto now = Clock::now(); now - looked >= look_period) {
      looked = now;
      open_.EndStalled(now);
    }
    if (ready <= 0) continue;  // EINTR, or time to look
    if (files[0].revents != 0) return;
    for (size_t i = 1; i < files.size(); ++i) {
      if (files[i].revents == 0) continue;
      const int socket = ::accept4(files[i].fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket < 0) {
        const int error = errno;
        if (!IsShortage(error)) continue;
        ++counts->accept_errors;
        if (taking.on_accept_error) taking.on_accept_error(error);
        if (WaitForStop(kAcceptPauseMs)) return;
        continue;
      }
      if (open_.Full(max_connections)) {
        ++counts->refused;
        ::close(socket);
        continue;
      }
      ++counts->accepted;
      Prepare(socket);
      open_.Add(socket, patience);
      taking.take(socket);
    }
  }
}

}  // namespace refrain::server::rpc
