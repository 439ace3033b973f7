// The port of the gRPC server, without gRPC: the test takes the connections.

#include "server/grpc/listener.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/listening_sockets.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/eventually.h"
#include "tests/support/files_left.h"

namespace refrain::server::rpc {
namespace {

using ::refrain::testing::Eventually;
using ::refrain::testing::FilesLeft;
using ::refrain::testing::RawClient;
using namespace std::chrono_literals;

// Keeps what it is given until it is told to close one.
class Taker {
 public:
  ~Taker() {
    for (const int socket : sockets_) ::close(socket);
  }
  void Take(int socket) {
    const std::lock_guard lock(mutex_);
    sockets_.push_back(socket);
    ++taken_;
  }
  void CloseOne() {
    const std::lock_guard lock(mutex_);
    ::close(sockets_.back());
    sockets_.pop_back();
  }
  int last() {
    const std::lock_guard lock(mutex_);
    return sockets_.back();
  }
  bool WaitForTaken(int count) {
    return Eventually([&] {
      const std::lock_guard lock(mutex_);
      return taken_ == count;
    });
  }

 private:
  std::mutex mutex_;
  std::vector<int> sockets_;
  int taken_ = 0;
};

class ListenerTest : public ::testing::Test {
 protected:
  void Start(int max_connections, std::chrono::milliseconds patience = 1h) {
    auto listener = Listener::Open("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Start(max_connections, &counts_,
                     {.take = [this](int socket) { taker_.Take(socket); },
                      .on_accept_error = [this](int error) { accept_error_ = error; }},
                     patience);
  }
  // Of the last that was taken: writes what it takes without waiting. False when it has ended.
  bool Fill() {
    const std::string bytes(16 << 10, 'x');
    while (::send(taker_.last(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    return errno == EAGAIN;
  }
  // Whether its owner reads its end within so long.
  bool EndsWithin(std::chrono::milliseconds time) {
    pollfd file = {.fd = taker_.last(), .events = POLLIN, .revents = 0};
    char byte = 0;
    return ::poll(&file, 1, static_cast<int>(time.count())) > 0 &&
           ::recv(taker_.last(), &byte, 1, MSG_DONTWAIT) <= 0;
  }

  // They outlive the thread that calls them.
  Taker taker_;
  ConnectionCounts counts_;
  std::atomic<int> accept_error_{0};
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerTest, ClosesAConnectionBeyondTheBoundAndKeepsTheOthers) {
  Start(2);
  RawClient first(listener_->port());
  RawClient second(listener_->port());
  ASSERT_TRUE(taker_.WaitForTaken(2));
  RawClient third(listener_->port());
  EXPECT_TRUE(third.ReadEnd());
  EXPECT_EQ(counts_.accepted, 2);
  EXPECT_EQ(counts_.refused, 1);
  EXPECT_FALSE(first.ReadEnd(50ms));
  EXPECT_FALSE(second.ReadEnd(50ms));
}

TEST_F(ListenerTest, TellsThatThereAreNoFilesAndTakesTheConnectionOnceThereAre) {
  Start(2);
  RawClient first(listener_->port());
  ASSERT_TRUE(taker_.WaitForTaken(1));
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(socket, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(listener_->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int lowest = ::dup(socket);
  ::close(lowest);
  const rlimit none_left{.rlim_cur = static_cast<rlim_t>(lowest), .rlim_max = usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (counts_.accept_errors < 2 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_GE(counts_.accept_errors, 2);
  EXPECT_EQ(accept_error_, EMFILE);
  EXPECT_TRUE(taker_.WaitForTaken(2));
  ::close(socket);
}

TEST_F(ListenerTest, AClientThatTakesNothingHasNoFileThatAnotherWaitsFor) {
  Start(2, 500ms);
  RawClient stalls(listener_->port());
  ASSERT_TRUE(taker_.WaitForTaken(1));
  ASSERT_TRUE(Fill());
  const FilesLeft one(1);
  RawClient waits(listener_->port());
  ASSERT_TRUE(waits.connected());
  EXPECT_TRUE(EndsWithin(10s));
  EXPECT_EQ(accept_error_, EMFILE);
  taker_.CloseOne();
  EXPECT_TRUE(taker_.WaitForTaken(2));
}

// Nagle's algorithm would hold a token back until the one before is acknowledged.
TEST_F(ListenerTest, SocketsSendSmallMessagesAtOnce) {
  Start(2);
  RawClient client(listener_->port());
  ASSERT_TRUE(taker_.WaitForTaken(1));
  int value = 0;
  socklen_t size = sizeof(value);
  ASSERT_EQ(::getsockopt(taker_.last(), IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
  EXPECT_NE(value, 0);
  // See StallWatch: it resets clients that read in small steps.
  ASSERT_EQ(::getsockopt(taker_.last(), IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
  EXPECT_EQ(value, 0);
}

// As a proxy does whose own client is slow: it reads so little at a time, at more than 64 KiB in
// `patience`, that the system probes the window. Then it stops.
TEST_F(ListenerTest, AClientKeepsItsConnectionAsLongAsItTakesWhatIsWritten) {
  constexpr auto kPatience = 3s;
  Start(2, kPatience);
  RawClient client(listener_->port(), /*receive_buffer_bytes=*/16 << 10);
  ASSERT_TRUE(taker_.WaitForTaken(1));
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < 3 * kPatience) {
    ASSERT_TRUE(Fill());
    ASSERT_TRUE(client.ReadAtMost(1 << 10));
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_FALSE(EndsWithin(kPatience / 6));
  EXPECT_TRUE(EndsWithin(10 * kPatience));
  taker_.CloseOne();
  EXPECT_TRUE(client.ReadEnd());
}

TEST_F(ListenerTest, AConnectionEndsWhoseClientIsUnpluggedBehindWhatWasWritten) {
  Start(2, 500ms);
  RawClient waits(listener_->port());
  ASSERT_TRUE(taker_.WaitForTaken(1));
  EXPECT_FALSE(EndsWithin(1500ms)) << "nothing was written";
  if (!waits.Unplug()) GTEST_SKIP() << "the system has no filters for sockets";
  EXPECT_EQ(::send(taker_.last(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_TRUE(EndsWithin(10s));
}

TEST_F(ListenerTest, APlaceComesBackWhenATakenConnectionIsClosed) {
  Start(2);
  RawClient first(listener_->port());
  RawClient second(listener_->port());
  ASSERT_TRUE(taker_.WaitForTaken(2));
  for (int i = 3; i < 20; ++i) {
    taker_.CloseOne();
    // The number of the closed file may be another file's by now.
    const int other = ::dup(0);
    std::this_thread::sleep_for(10ms);
    RawClient next(listener_->port());
    EXPECT_TRUE(taker_.WaitForTaken(i)) << i;
    EXPECT_FALSE(next.ReadEnd(20ms)) << i;
    ::close(other);
  }
}

TEST_F(ListenerTest, ConnectionsWaitUntilItStarts) {
  auto listener = Listener::Open("localhost", 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  RawClient early((*listener)->port());
  EXPECT_FALSE(early.ReadEnd(50ms));
  (*listener)->Start(8, &counts_, {.take = [this](int socket) { taker_.Take(socket); }});
  EXPECT_TRUE(taker_.WaitForTaken(1));
}

TEST_F(ListenerTest, ListensAtEveryAddressOfAName) {
  auto listener = Listener::Open("localhost", 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto addresses = AddressesOf("localhost");
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  (*listener)->Start(8, &counts_, {.take = [this](int socket) { taker_.Take(socket); }});
  int connected = 0;
  for (SocketAddress address : *addresses) {
    const int socket = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;  // a list of names may have ::1 where there is no IPv6
    // The port lies at the same place in both families.
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons((*listener)->port());
    connected +=
        ::connect(socket, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) == 0;
    EXPECT_TRUE(taker_.WaitForTaken(connected));
    ::close(socket);
  }
  EXPECT_GT(connected, 0);
  EXPECT_EQ(counts_.accepted, connected);
}

TEST_F(ListenerTest, StopClosesThePortAndNoConnection) {
  Start(8);
  RawClient kept(listener_->port());
  ASSERT_TRUE(taker_.WaitForTaken(1));
  const uint16_t port = listener_->port();
  listener_->Stop();
  listener_->Stop();
  EXPECT_FALSE(RawClient(port).connected());
  EXPECT_FALSE(kept.ReadEnd(50ms));
}

TEST_F(ListenerTest, WaitsUntilWhatWasTakenIsClosed) {
  Start(8);
  RawClient first(listener_->port()), second(listener_->port());
  ASSERT_TRUE(taker_.WaitForTaken(2));
  listener_->Stop();
  const auto soon = [] { return std::chrono::steady_clock::now() + 20ms; };
  EXPECT_FALSE(listener_->WaitUntilNoConnections(soon()));
  taker_.CloseOne();
  int other[2];  // one of them has its number
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
  EXPECT_FALSE(listener_->WaitUntilNoConnections(soon()));
  listener_->ShutDownConnections();
  EXPECT_TRUE(first.ReadEnd());
  char byte = 'a';
  EXPECT_EQ(::write(other[0], &byte, 1), 1);
  EXPECT_EQ(::read(other[1], &byte, 1), 1);
  EXPECT_EQ(::write(other[1], &byte, 1), 1);
  taker_.CloseOne();
  EXPECT_TRUE(listener_->WaitUntilNoConnections(soon()));
  for (const int socket : other) ::close(socket);
}

TEST_F(ListenerTest, SaysWhichLimitsThereAreWhereTheSystemRefusesAFile) {
  int files = 0;
  for (;; ++files) {
    ASSERT_LT(files, 20);
    const FilesLeft few(files);
    const auto listener = Listener::Open("127.0.0.1", 0);
    if (listener.ok()) break;
    const std::string text(listener.status().message());
    EXPECT_NE(text.find("ulimit -n"), std::string::npos) << files << text;
  }
  EXPECT_GT(files, 1);
}

TEST_F(ListenerTest, AnAddressThatCannotBeHadIsNamedWithTheReason) {
  Start(8);
  const auto taken = Listener::Open("127.0.0.1", listener_->port());
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable);
  const std::string text(taken.status().message());
  EXPECT_NE(text.find(std::to_string(listener_->port())), std::string::npos) << text;
  EXPECT_NE(text.find("in use"), std::string::npos) << text;
  EXPECT_FALSE(Listener::Open("192.0.2.1", 0).ok()) << "not of this machine";
  EXPECT_FALSE(Listener::Open("no-such-host.invalid", 0).ok());
}

}  // namespace
}  // namespace refrain::server::rpc
