// The daemon as a process that is given little, or something odd: files, threads, disk, standard
// output and error.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "server/daemon.h"
#include "tests/server/daemon_process.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/eventually.h"
#include "tests/support/little_room.h"
#include "tests/support/temporary_directory.h"

namespace refrain::server {
namespace {

using ::refrain::testing::DaemonArguments;
using ::refrain::testing::DaemonProcess;
using ::refrain::testing::Eventually;
using ::refrain::testing::GetRequest;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::TemporaryDirectory;

int StatusOf(ExitStatus status) { return static_cast<int>(status); }

// The usual soft limit, in small.
TEST(DaemonSurroundings, OpensMoreConnectionsThanTheSoftLimitOfFiles) {
  DaemonProcess daemon(DaemonArguments("fake"),
                       {.open_files = rlimit{.rlim_cur = 64, .rlim_max = 1024}});
  const uint16_t port = daemon.Port();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  EXPECT_NE(daemon.output().find("fewer connections are taken open_files=1024"), std::string::npos)
      << daemon.output();
  std::vector<RawClient> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back(port);
    clients.back().Send(GetRequest("/live"));
    ASSERT_EQ(clients.back().ReadResponse().status, 200) << i;
  }
}

// Its I/O threads have files, too.
TEST(DaemonSurroundings, TurnsConnectionsAwayBeforeItRunsOutOfFiles) {
  for (const auto& [io_threads, files] : {std::pair<int, rlim_t>{2, 150}, {64, 400}}) {
    DaemonProcess daemon(
        DaemonArguments("fake", {"--set", "server.io_threads=" + std::to_string(io_threads)}),
        {.open_files = rlimit{.rlim_cur = files, .rlim_max = files}});
    const uint16_t port = daemon.Port();
    ASSERT_TRUE(daemon.WaitForOutput("ready"));
    std::vector<RawClient> clients;
    const std::string request = GetRequest("/live");
    for (rlim_t i = 0; i < files + 50; ++i) {
      clients.emplace_back(port);
      clients.back().Send(request.substr(0, 1));  // who idles may be ended
    }
    EXPECT_EQ(clients.back().ReadResponse().status, 503) << io_threads;
    clients.front().Send(request.substr(1));
    EXPECT_EQ(clients.front().ReadResponse().status, 200) << io_threads;
  }
}

// As a supervisor with a small soft limit leaves it: the files that it hears signals by are among
// those that need more.
TEST(DaemonSurroundings, HearsSignalsWhereTheSoftLimitOfFilesLeavesOne) {
#ifndef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
  GTEST_SKIP() << "UBSan looks at objects through a pipe, for which no file is left";
#endif
  DaemonProcess daemon(DaemonArguments("fake"),
                       {.open_files = rlimit{.rlim_cur = 4, .rlim_max = 1024}});
  ASSERT_TRUE(daemon.WaitForOutput(" ready ")) << daemon.output();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk)) << daemon.output();
}

// As where other processes use up the system's. Who connects waits.
TEST(DaemonSurroundings, SaysOnceThatItCannotAcceptAndCountsIt) {
#ifndef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
  GTEST_SKIP() << "UBSan looks at objects through a pipe, for which no file is left";
#endif
  constexpr rlim_t kFiles = 512;
  DaemonProcess daemon(DaemonArguments("fake", {"--grpc-listen", "127.0.0.1:0"}),
                       {.open_files = rlimit{kFiles, kFiles}});
  const uint16_t port = daemon.Port();
  const uint16_t grpc_port = daemon.GrpcPort();
  ASSERT_TRUE(daemon.WaitForOutput(" ready ")) << daemon.output();
  RawClient looks(port);
  std::string page;
  const auto tries = [&](const std::string& front_end) {
    const std::string name = "refrain_accept_errors_total{front_end=\"" + front_end + "\"} ";
    const size_t at = page.find(name);
    return at == std::string::npos ? -1 : std::stoi(page.substr(at + name.size()));
  };
  const auto look = [&] {
    looks.Send(GetRequest("/metrics"));
    page = looks.ReadResponse().body;
  };
  look();
  ASSERT_EQ(tries("http"), 0) << page;
  daemon.LimitOpenFiles(3);
  RawClient waits(port);
  const RawClient waits_for_grpc(grpc_port);
  const std::string said = "none can be accepted front_end=";
  const std::string why = " error=\"Too many open files\"";
  EXPECT_TRUE(daemon.WaitForOutput(said + "http" + why)) << daemon.output();
  EXPECT_TRUE(daemon.WaitForOutput(said + "grpc" + why)) << daemon.output();
  EXPECT_TRUE(Eventually([&] {
    look();
    return tries("http") > 1 && tries("grpc") > 1;
  })) << page;
  daemon.LimitOpenFiles(kFiles);
  waits.Send(GetRequest("/live"));
  EXPECT_EQ(waits.ReadResponse().status, 200);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk)) << daemon.output();
  for (const std::string front_end : {"http", "grpc"}) {
    const size_t first = daemon.output().find(said + front_end);
    EXPECT_EQ(daemon.output().find(said + front_end, first + 1), std::string::npos);
  }
}

// With a few files less it would serve nobody, with many less gRPC would abort.
TEST(DaemonSurroundings, RefusesAStartWithFewerFilesThanServingTakes) {
#ifndef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
  GTEST_SKIP() << "UBSan looks at objects through a pipe, for which no file is left";
#endif
  struct Case {
    std::vector<std::string> more;
    rlim_t needed;
  };
  const Case cases[] = {
      {{}, 71}, {{"--grpc-listen", "127.0.0.1:0"}, 72}, {{"--set", "server.io_threads=64"}, 257}};
  for (const auto& [more, needed] : cases) {
    for (const rlim_t files : {rlim_t{16}, rlim_t{40}, needed - 1}) {
      DaemonProcess daemon(DaemonArguments("fake", more), {.open_files = rlimit{files, files}});
      EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kFailed)) << files << daemon.output();
      for (const std::string& part :
           {std::string("ulimit -n"), std::to_string(files), std::to_string(needed)}) {
        EXPECT_NE(daemon.output().find(part), std::string::npos) << part << daemon.output();
      }
    }
    DaemonProcess daemon(DaemonArguments("fake", more), {.open_files = rlimit{needed, needed}});
    RawClient client(daemon.Port());
    client.Send(GetRequest("/live"));
    EXPECT_EQ(client.ReadResponse().status, 200) << needed << daemon.output();
    EXPECT_TRUE(daemon.WaitForOutput(" ready ")) << needed << daemon.output();
    daemon.Signal(SIGTERM);
    EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk)) << needed << daemon.output();
  }
}

// As ulimit -u, systemd's TasksMax or a container's limit of pids would: here the addresses end
// with the stacks of so many threads.
TEST(DaemonSurroundings, SaysWhichLimitsThereAreWhereTheSystemRefusesAThread) {
#ifndef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
  GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
#endif
  constexpr rlim_t kStackBytes = rlim_t{2} << 30;
  TemporaryDirectory folder;
  const std::vector<std::string> log = {"--set",
                                        "log.requests_file=" + folder.path() + "/requests.jsonl"};
  int threads = 0;
  for (bool ready = false; !ready; ++threads) {
    ASSERT_LT(threads, 50);
    const rlim_t addresses = kStackBytes * threads + kStackBytes / 2;
    DaemonProcess daemon(DaemonArguments("fake", log),
                         {.stack_bytes = rlimit{kStackBytes, kStackBytes},
                          .address_bytes = rlimit{addresses, addresses}});
    ready = daemon.WaitForOutput(" ready ");
    if (ready) break;
    EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kFailed)) << threads << daemon.output();
    EXPECT_NE(daemon.output().find("TasksMax"), std::string::npos) << threads << daemon.output();
  }
  EXPECT_GT(threads, 5) << "the limit has no effect";
}

TEST(DaemonSurroundings, SaysWhichLimitsThereAreWhereTheSystemRefusesMemoryForTheModel) {
  DaemonProcess daemon(DaemonArguments("huge"));
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kFailed)) << daemon.output();
  EXPECT_NE(daemon.output().find("ulimit -v"), std::string::npos) << daemon.output();
}

// ulimit -s, LimitSTACK. Kernels take half a megabyte.
TEST(DaemonSurroundings, ItsThreadsHaveStacksOfTwoMegabytesWhereTheLimitIsSmall) {
  constexpr rlim_t kStackBytes = 512 << 10;
  DaemonProcess daemon(DaemonArguments("deep"), {.stack_bytes = rlimit{kStackBytes, kStackBytes}});
  EXPECT_TRUE(daemon.WaitForOutput(" ready ")) << daemon.output();
}

// A body takes twice its size while it grows.
TEST(DaemonSurroundings, RefusesABodyForWhichThereIsNoMemory) {
#ifndef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
  GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
#endif
  constexpr size_t kBodyBytes = 40 << 20;
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "limits.body_bytes=64MiB"}));
  const uint16_t port = daemon.Port();
  ASSERT_TRUE(daemon.WaitForOutput(" ready ")) << daemon.output();
  const auto ask = [&](const std::string& prompt) {
    RawClient client(port);
    client.Send(PostRequest("/v1/completions", R"({"prompt":")" + prompt + R"("})"));
    return client.ReadResponse();
  };
  ASSERT_EQ(ask("before").status, 200);
  daemon.LimitMoreAddresses(kBodyBytes);
  RawResponse refused = ask(std::string(kBodyBytes, 'a'));
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(refused.headers["retry-after"], "1");
  EXPECT_NE(refused.body.find("no memory"), std::string::npos) << refused.body;
  EXPECT_EQ(ask("behind").status, 200);
}

// A limit on the size of files (ulimit -f, LimitFSIZE) is met as a full disk is.
TEST(DaemonSurroundings, OutlivesARequestLogThatMayGrowNoMore) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer writes a file before main, and reads it as memory";
#endif
  TemporaryDirectory folder;
  DaemonProcess daemon(
      DaemonArguments("fake", {"--set", "log.requests_file=" + folder.path() + "/requests.jsonl"}),
      {.file_bytes = rlimit{.rlim_cur = 1000, .rlim_max = 1000}});
  RawClient client(daemon.Port());
  for (int i = 0; i < 20; ++i) {
    client.Send(GetRequest("/live"));
    ASSERT_EQ(client.ReadResponse().status, 200) << i;
  }
  ASSERT_TRUE(daemon.WaitForOutput("lines of the request log are lost")) << daemon.output();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
}

// The file that is opened first would have its number, and get what the log says.
TEST(DaemonSurroundings, LogsIntoNoOtherFileWhereStandardErrorIsClosed) {
  TemporaryDirectory folder;
  const std::string path = folder.path() + "/requests.jsonl";
  DaemonProcess daemon(DaemonArguments("fail", {"--set", "log.requests_file=" + path}),
                       {.closed_stderr = true});
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kFailed));
  ASSERT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(std::filesystem::file_size(path), 0U);
}

// Which cannot be opened by its path: systemd's journal reads from a socket.
TEST(DaemonSurroundings, WritesTheRequestLogToStandardOutputThatIsASocket) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const std::vector<std::string> log = {"--set", "log.requests_file=/dev/stdout"};
  DaemonProcess check({"--model", "m", "--check-config", log[0], log[1]}, {.stdout_file = ends[1]});
  EXPECT_EQ(check.Wait(), 0) << check.output();
  const std::string said = "configuration ok\n";
  std::string read(said.size(), ' ');
  EXPECT_EQ(::recv(ends[0], read.data(), read.size(), MSG_DONTWAIT),
            static_cast<ssize_t>(said.size()));

  const int room = 4096;
  ::setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
  DaemonProcess daemon(DaemonArguments("fake", log), {.stdout_file = ends[1]});
  ::close(ends[1]);
  ASSERT_TRUE(daemon.WaitForOutput("ready")) << daemon.output();
  RawClient client(daemon.Port());
  const auto ask = [&](const std::string& path) {
    client.Send(GetRequest(path));
    EXPECT_EQ(client.ReadResponse().status, 404);
  };
  ask("/first");
  read.assign(4096, ' ');
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  ::setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const ssize_t bytes = ::recv(ends[0], read.data(), read.size(), 0);
  EXPECT_NE(read.substr(0, std::max<ssize_t>(bytes, 0)).find("\"path\":\"/first\""),
            std::string::npos);
  daemon.Signal(SIGHUP);
  EXPECT_TRUE(daemon.WaitForOutput("reloaded what=\"request log\"")) << daemon.output();
  // Nobody reads on: that holds up neither answers nor the end.
  const std::string path = "/" + std::string(150, 'x');
  for (int i = 0; i < 200; ++i) ask(path);
  client.Close();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0) << daemon.output();
  EXPECT_NE(daemon.output().find("lines of the request log are lost"), std::string::npos);
  ::close(ends[0]);
}

}  // namespace
}  // namespace refrain::server
