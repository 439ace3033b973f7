// Connections for which there is no memory as they are accepted.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/server/http/server_fixture.h"

namespace {

thread_local bool accepts = false;
// Of what that thread asks for: so many more succeed, the next one is refused.
std::atomic<int> until_refused{-1};

bool IsRefused() { return accepts && until_refused >= 0 && until_refused-- == 0; }

}  // namespace

void* operator new(size_t bytes) {
  if (IsRefused()) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// Not inlined: g++ warns of a free() that it sees beside a new.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
// What Asio has operations and the frames of coroutines in.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) {
  void* memory = nullptr;
  return IsRefused() || posix_memalign(&memory, alignment, bytes) != 0 ? nullptr : memory;
}

namespace refrain::server::http {
namespace {

using ::refrain::testing::GetRequest;
using ::refrain::testing::RawClient;
using namespace std::chrono_literals;

constexpr int kAllocations = 20;  // more than one takes who connects

class AcceptMemoryTest : public HttpServerTest {
 protected:
  void Start(int max_connections = 1000) {
    router_.Add({"GET", "/accepts", [](Request) {
                   accepts = true;
                   return MakeReply({}, "");
                 }});
    // Nobody is accepted until the test says so.
    router_.Add({"GET", "/holds", [this](Request) {
                   ++observed_.alive;
                   while (!observed_.go) std::this_thread::sleep_for(1ms);
                   return MakeReply({}, "");
                 }});
    HttpServerTest::Start({.io_threads = 1,
                           .max_connections = max_connections,
                           .connection_counts = counts_,
                           .on_accept_error = [this](int error) { error_ = error; },
                           .place_kept = 0ms});
    kept_.clear();
    Keep("/accepts");
  }
  // A connection that stays: it leaves nothing behind that another could use again.
  void Keep(std::string_view path) {
    kept_.push_back(Connect());
    kept_.back().Send(GetRequest(path));
    ASSERT_EQ(kept_.back().ReadResponse().status, 200);
  }

  // Another server.
  void StartAgain(int max_connections = 1000) {
    server_.reset();
    router_ = Router();
    observed_.alive = 0;
    observed_.go = false;
    Start(max_connections);
  }

  const std::shared_ptr<ConnectionCounts> counts_ = std::make_shared<ConnectionCounts>();
  std::atomic<int> error_{0};
  std::vector<RawClient> kept_;
};

// Whichever allocation is refused. Twice: what goes on beside may be met in its place.
TEST_F(AcceptMemoryTest, IsTheTroubleOfOneConnection) {
  Start();
  for (int i = 0; i < 2 * kAllocations; ++i) {
    until_refused = i % kAllocations;
    RawClient client = Connect();
    client.Send(GetRequest("/hello"));
    client.ReadResponse();  // or the end
    until_refused = -1;
    for (int j = 0; j < 3; ++j) ASSERT_NO_FATAL_FAILURE(Keep("/hello")) << i;
  }
  EXPECT_GT(counts_->accept_errors, 0);
  EXPECT_EQ(error_, ENOMEM);
}

// There is no memory for a connection that the system has accepted: its client reads the end. What
// is refused may be another allocation, of what goes on beside.
TEST_F(AcceptMemoryTest, CountsAConnectionThatWasAccepted) {
  Start();
  kept_.clear();
  bool ended = false;
  for (int i = 0; i < 20 && !ended; ++i) {
    // What Asio keeps of this one is there for the next, which takes nothing new before it is
    // accepted.
    { const RawClient leaves = Connect(); }
    ASSERT_TRUE(Eventually([&] { return server_->connections() == 0; }));
    std::this_thread::sleep_for(5ms);
    const int64_t accepted = counts_->accepted, errors = counts_->accept_errors;
    until_refused = 0;
    RawClient client = Connect();
    ended = client.ReadEnd(200ms);
    until_refused = -1;
    if (!ended) continue;
    EXPECT_EQ(counts_->accepted, accepted + 1);
    EXPECT_TRUE(Eventually([&] { return counts_->accept_errors == errors + 1; }));
  }
  EXPECT_TRUE(ended);
}

// Idle connections are ended for others, which takes a timer of the loop's queue: it grows where it
// has as many as a power of two.
TEST_F(AcceptMemoryTest, AFullServerGoesOnAccepting) {
  for (int connections = 1; connections <= 4; ++connections) {
    for (int i = 0; i < kAllocations; ++i) {
      StartAgain(connections);
      for (int j = 1; j < connections; ++j) Keep("/hello");
      const auto status = [&] {
        RawClient client = Connect();
        client.Send(GetRequest("/hello"));
        return client.ReadResponse().status;
      };
      until_refused = i;
      status();  // or the end
      until_refused = -1;
      // 503 while the connection that met it is not idle.
      ASSERT_TRUE(Eventually([&] { return status() == 200; })) << connections << " " << i;
    }
  }
}

// One that waits to be accepted as the server ends.
TEST_F(AcceptMemoryTest, DoesNotKeepTheServerFromEnding) {
  for (int i = 0; i < kAllocations; ++i) {
    StartAgain();
    RawClient busy = Connect();
    busy.Send(GetRequest("/holds"));
    ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
    RawClient waits = Connect();
    std::promise<void> ended;
    std::thread end([&] {
      server_->Stop(0ms);
      ended.set_value();
    });
    std::this_thread::sleep_for(20ms);
    until_refused = i;
    observed_.go = true;
    if (ended.get_future().wait_for(20s) != std::future_status::ready) {
      ADD_FAILURE() << "Stop does not return, " << i;
      std::_Exit(1);
    }
    end.join();
    until_refused = -1;
  }
  EXPECT_GT(counts_->accept_errors, 0);
}

}  // namespace
}  // namespace refrain::server::http
