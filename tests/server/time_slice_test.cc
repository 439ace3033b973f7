#include "server/time_slice.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "server/http/router.h"
#include "server/http/server.h"
#include "tests/server/http/raw_client.h"

namespace refrain::server {
namespace {

constexpr size_t kPolicy = 1, kRuntime = 6;

// sched_attr as words of 32 bits.
std::array<uint32_t, 12> Attributes() {
  std::array<uint32_t, 12> words{};
  EXPECT_EQ(::syscall(SYS_sched_getattr, 0, words.data(), sizeof(words), 0), 0);
  return words;
}

bool KernelHasSlices() {
  utsname name{};
  int major = 0, minor = 0;
  ::uname(&name);
  std::sscanf(name.release, "%d.%d", &major, &minor);
  return major > 6 || (major == 6 && minor >= 12);
}

TEST(TimeSlice, IsShortForTheThreadThatAsksAndAsItWasForOthers) {
  if (!KernelHasSlices()) GTEST_SKIP() << "Linux before 6.12 has one slice for all";
  const auto before = Attributes();
  if (before[kPolicy] != 0) GTEST_SKIP() << "runs under another policy than SCHED_OTHER";
  std::thread([] {
    AskForShortTimeSlice();
    EXPECT_EQ(Attributes()[kRuntime], 100'000u);
  }).join();
  EXPECT_EQ(Attributes(), before);
}

TEST(TimeSlice, LeavesAPolicyThatAnOperatorChose) {
  std::thread([] {
    auto words = Attributes();
    words[kPolicy] = 3;  // SCHED_BATCH, which anybody may choose
    ASSERT_EQ(::syscall(SYS_sched_setattr, 0, words.data(), 0), 0);
    const auto chosen = Attributes();
    AskForShortTimeSlice();
    EXPECT_EQ(Attributes(), chosen);
  }).join();
}

// What waits for a thread to wake up is short work; what works for longer is not to take the
// processor from others more often than they from it.
TEST(TimeSlice, IsShortForSocketsAndProbesAndNotForWorkers) {
  if (!KernelHasSlices()) GTEST_SKIP() << "Linux before 6.12 has one slice for all";
  if (Attributes()[kPolicy] != 0) GTEST_SKIP() << "runs under another policy than SCHED_OTHER";
  const auto tell = [](http::Request) {
    return http::MakeReply({}, std::to_string(Attributes()[kRuntime]));
  };
  http::Router router;
  router.Add({"GET", "/socket", tell, http::HandlerSpeed::kQuick});
  router.Add({"GET", "/probe", tell, http::HandlerSpeed::kProbe});
  router.Add({"GET", "/worker", tell, http::HandlerSpeed::kSlow});
  http::ServerOptions options;
  options.error_body = [](int, std::string_view) { return std::string(); };
  const auto server = *http::Server::Start(std::move(options), &router);
  testing::RawClient client(server->port());
  const auto slice = [&](const char* path) {
    client.Send(testing::GetRequest(path));
    return client.ReadResponse().body;
  };
  EXPECT_EQ(slice("/socket"), "100000");
  EXPECT_EQ(slice("/probe"), "100000");
  EXPECT_EQ(slice("/worker"), std::to_string(Attributes()[kRuntime]));
}

}  // namespace
}  // namespace refrain::server
