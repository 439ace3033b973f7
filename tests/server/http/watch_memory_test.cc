// A connection for whose watching there is no memory, beside an answer under TLS.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <string_view>

#include "tests/server/http/server_fixture.h"
#include "tests/server/http/tls_client.h"
#include "tests/support/certificate.h"
#include "tests/support/temporary_directory.h"

namespace {

constexpr size_t kReadBytes = 16 << 10;  // of a connection
std::atomic<bool> no_room_for_more{false};

}  // namespace

// What a connection keeps and another read beside it is the only thing of such a size.
void* operator new(size_t bytes) {
  if (no_room_for_more && bytes > kReadBytes && bytes < 2 * kReadBytes) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
// Not inlined: g++ warns of a free() that it sees beside a new.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace refrain::server::http {
namespace {

using ::refrain::testing::GetRequest;
using ::refrain::testing::TlsClient;
using namespace std::chrono_literals;

TEST_F(HttpServerTest, AnAnswerThatIsNoLongerWatchedUnderTlsEnds) {
  const testing::TemporaryDirectory folder;
  const auto pair = testing::MakeCertificate("localhost");
  std::ofstream(folder.path() + "/cert") << pair.certificate;
  std::ofstream(folder.path() + "/key") << pair.key;
  auto tls = TlsCertificate::Load(folder.path() + "/cert", folder.path() + "/key");
  ASSERT_TRUE(tls.ok()) << tls.status();
  std::atomic<int> faults{0};
  Start({.on_fault = [&](std::string_view) { ++faults; }, .tls = *std::move(tls)});

  TlsClient client(server_->port());
  ASSERT_TRUE(client.Send(GetRequest("/held")));
  ASSERT_TRUE(Eventually([&] { return observed_.alive == 1; }));
  no_room_for_more = true;
  ASSERT_TRUE(client.Send(GetRequest("/hello", "X-A: " + std::string(4000, 'x') + "\r\n")));
  ASSERT_TRUE(Eventually([&] { return faults == 1; }));
  no_room_for_more = false;
  observed_.go = true;
  EXPECT_TRUE(client.ReadUntil("\r\n\r\nheld"));
  EXPECT_TRUE(client.ReadUntil("\r\n\r\nhello"));
  EXPECT_TRUE(server_->WaitUntilAnswered(std::chrono::steady_clock::now() + 5s));
  if (HasFailure()) std::_Exit(1);  // Stop would not return
  server_->Stop(0ms);
}

}  // namespace
}  // namespace refrain::server::http
