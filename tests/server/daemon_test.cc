// The daemon as a process: start, signals, exit statuses.

#include "server/daemon.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/daemon_process.h"
#include "tests/server/http/raw_client.h"
#include "tests/support/certificate.h"
#include "tests/support/temporary_directory.h"

namespace refrain::server {
namespace {

using ::refrain::testing::DaemonArguments;
using ::refrain::testing::DaemonProcess;
using ::refrain::testing::GetRequest;
using ::refrain::testing::PostRequest;
using ::refrain::testing::RawClient;
using ::refrain::testing::RawResponse;
using ::refrain::testing::TemporaryDirectory;
using namespace std::chrono_literals;

int StatusOf(ExitStatus status) { return static_cast<int>(status); }

// Of datagrams, at a path, or at an abstract name that begins with '@'; -1 where that fails.
int BindSocket(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof(address.sun_path)) return -1;
  name.copy(address.sun_path, name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return fd;
  ::close(fd);
  return -1;
}

TEST(Daemon, AnswersHelpVersionAndCheckConfig) {
  DaemonProcess help({"--help"});
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_NE(help.output().find("engine.max_sequences = 64"), std::string::npos);
  DaemonProcess version({"--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_NE(version.output().find("refraind "), std::string::npos);
  DaemonProcess good({"--model", "m", "--check-config"});
  EXPECT_EQ(good.Wait(), 0);
  DaemonProcess bad({"--model", "m", "--check-config", "--set", "limits.n=0"});
  EXPECT_EQ(bad.Wait(), StatusOf(ExitStatus::kBadUsage));
  EXPECT_NE(bad.output().find("limits.n"), std::string::npos);
  DaemonProcess narrow({"--model", "m", "--check-config", "--set", "engine.max_sequences=513"});
  EXPECT_EQ(narrow.Wait(), StatusOf(ExitStatus::kBadUsage));
  EXPECT_NE(narrow.output().find("engine.step_token_budget"), std::string::npos);
}

TEST(Daemon, CheckConfigTouchesNoRequestLog) {
  TemporaryDirectory folder;
  const std::string path = folder.path() + "/requests.jsonl";
  DaemonProcess good({"--model", "m", "--check-config", "--set", "log.requests_file=" + path});
  EXPECT_EQ(good.Wait(), 0) << good.output();
  EXPECT_FALSE(std::filesystem::exists(path));
  // The name of a socket may be 107 bytes long.
  const std::string socket_path = "/tmp/refrain-socket-" + std::to_string(::getpid());
  const int socket = BindSocket(socket_path);
  for (const std::string& wrong :
       {folder.path(), folder.path() + "/none/requests.jsonl", socket_path}) {
    DaemonProcess bad({"--model", "m", "--check-config", "--set", "log.requests_file=" + wrong});
    EXPECT_EQ(bad.Wait(), StatusOf(ExitStatus::kBadUsage));
    EXPECT_NE(bad.output().find(wrong), std::string::npos) << bad.output();
  }
  ::close(socket);
  ::unlink(socket_path.c_str());
}

// What every start refuses, it refuses too.
TEST(Daemon, CheckConfigReadsTheChatTemplate) {
  TemporaryDirectory folder;
  const auto check = [](const std::string& path) {
    return DaemonProcess(
        {"--model", "m", "--check-config", "--set", "model.chat_template_file=" + path});
  };
  const std::string path = folder.path() + "/chat.jinja";
  for (const std::string& source :
       {std::string(), std::string("{% for m in messages %}\n{% include m.role %}{% endfor %}"),
        std::string("chatml")}) {
    std::ofstream(path) << source;
    DaemonProcess bad = check(path);
    EXPECT_EQ(bad.Wait(), StatusOf(ExitStatus::kBadUsage)) << source;
    for (const std::string& part : {std::string("model.chat_template_file"), path}) {
      EXPECT_NE(bad.output().find(part), std::string::npos) << bad.output();
    }
  }
  DaemonProcess none = check(folder.path() + "/none");
  EXPECT_EQ(none.Wait(), StatusOf(ExitStatus::kBadUsage));
  EXPECT_NE(none.output().find(folder.path() + "/none"), std::string::npos) << none.output();
  std::ofstream(path) << "{% for m in messages %}{{ bos_token + m.content }}{% endfor %}";
  DaemonProcess good = check(path);
  EXPECT_EQ(good.Wait(), StatusOf(ExitStatus::kOk)) << good.output();
}

TEST(Daemon, ListensBeforeTheModelIsLoaded) {
  DaemonProcess daemon(DaemonArguments("slow"));
  const uint16_t port = daemon.Port();
  ASSERT_NE(port, 0) << daemon.output();
  RawClient early(port);
  early.Send(GetRequest("/health"));
  EXPECT_EQ(early.ReadResponse().status, 503);
  ASSERT_TRUE(daemon.WaitForOutput("ready model=fake-model"));
  early.Send(GetRequest("/health"));
  EXPECT_EQ(early.ReadResponse().status, 200);
}

// Each is logged once, and what runs goes on.
TEST(Daemon, TellsOfAnEngineThatIsStalledUntilItGetsOn) {
  DaemonProcess daemon(DaemonArguments("fake"));
  const uint16_t port = daemon.Port();
  ASSERT_TRUE(daemon.WaitForOutput("ready model=fake-model"));
  RawClient asker(port);
  {
    RawClient hanging(port);
    hanging.Send(PostRequest("/v1/completions", R"({"prompt":"[[stall]]x"})"));
    ASSERT_TRUE(
        daemon.WaitForOutput("the engine is stalled: requests wait "
                             "status=\"the engine hangs, for once\""))
        << daemon.output();
    for (const char* path : {"/health", "/ping", "/ready"}) {
      asker.Send(GetRequest(path));
      const RawResponse response = asker.ReadResponse();
      EXPECT_EQ(response.status, 503) << path;
      EXPECT_NE(response.body.find("the engine hangs, for once"), std::string::npos) << path;
    }
  }
  ASSERT_TRUE(daemon.WaitForOutput("the engine gets on again")) << daemon.output();
  for (const char* path : {"/health", "/ready"}) {
    asker.Send(GetRequest(path));
    EXPECT_EQ(asker.ReadResponse().status, 200) << path;
  }
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
  const size_t first = daemon.output().find("is stalled");
  EXPECT_EQ(daemon.output().find("is stalled", first + 1), std::string::npos) << daemon.output();
}

// How much the KV cache holds is told where operators look first.
TEST(Daemon, TellsTheCachesCapacityInTokensWhenReady) {
  DaemonProcess daemon(DaemonArguments("fake"));
  ASSERT_TRUE(daemon.WaitForOutput(" kv_capacity_tokens=4096")) << daemon.output();
  const size_t ready = daemon.output().find(" ready ");
  ASSERT_NE(ready, std::string::npos);
  EXPECT_EQ(daemon.output().find('\n', ready), daemon.output().rfind('\n'));
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
}

TEST(Daemon, FailsWhenTheModelCannotBeLoaded) {
  DaemonProcess daemon(DaemonArguments("fail"));
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kFailed));
  EXPECT_NE(daemon.output().find("no such model: fail"), std::string::npos);
}

TEST(Daemon, FailsWhenItCannotListen) {
  DaemonProcess daemon(DaemonArguments("fake", {"--listen", "203.0.113.1:1"}));
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kFailed));
  EXPECT_NE(daemon.output().find("cannot listen on 203.0.113.1:1"), std::string::npos);
}

// Two daemons on one machine: the second one is told which key to change.
TEST(Daemon, NamesTheKeyOfAPortThatIsTaken) {
  DaemonProcess first(DaemonArguments("fake"));
  const std::string taken = "127.0.0.1:" + std::to_string(first.Port());
  DaemonProcess second(DaemonArguments("fake", {"--listen", taken}));
  EXPECT_EQ(second.Wait(), StatusOf(ExitStatus::kFailed));
  EXPECT_NE(second.output().find("server.http_listen: cannot listen on " + taken),
            std::string::npos)
      << second.output();
}

TEST(Daemon, EndsAtOnceWhenNothingRuns) {
  DaemonProcess daemon(DaemonArguments("fake"));
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  daemon.Signal(SIGINT);
  EXPECT_EQ(daemon.Wait(), StatusOf(ExitStatus::kOk));
}

// As `docker pause` does. What a client sent in time is there when the process goes on, and so is
// the end of the idle time.
TEST(Daemon, AnswersWhatCameBeforeTheIdleLimitThoughItWasStopped) {
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "limits.http_idle_s=0.3"}));
  RawClient client(daemon.Port());
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  for (int i = 0; i < 3; ++i) {
    daemon.Pause();
    client.Send(GetRequest("/live"));
    std::this_thread::sleep_for(400ms);
    daemon.Signal(SIGCONT);
    ASSERT_EQ(client.ReadResponse().status, 200) << i;
  }
  EXPECT_TRUE(client.ReadEnd());
}

TEST(Daemon, EndsIdleHttpConnectionsAsConfigured) {
  for (const bool ends : {true, false}) {
    DaemonProcess daemon(DaemonArguments(
        "fake", {"--set", ends ? "limits.http_idle_s=0.2" : "limits.http_idle_s=0"}));
    RawClient client(daemon.Port());
    EXPECT_EQ(client.ReadEnd(ends ? 10s : 500ms), ends);
  }
}

// Also more often than is possible: rounded down it would be never.
TEST(Daemon, PingsStreamsAsConfigured) {
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "http.sse_ping_s=0.0005"}));
  RawClient client(daemon.Port());
  ASSERT_TRUE(daemon.WaitForOutput(" ready "));
  client.Send(PostRequest("/v1/completions", R"({"prompt":"[[hold]]","stream":true})"));
  EXPECT_TRUE(client.ReadUntil(": ping\n\n"));
}

TEST(Daemon, BoundsGrpcConnectionsAndEndsIdleOnesAsConfigured) {
  DaemonProcess daemon(
      DaemonArguments("fake", {"--grpc-listen", "127.0.0.1:0", "--set", "limits.grpc_connections=1",
                               "--set", "limits.grpc_idle_s=3"}));
  const uint16_t port = daemon.GrpcPort();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  RawClient first(port);
  first.Send(std::string_view("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33));
  ASSERT_TRUE(first.ReadPast(0));
  RawClient second(port);
  EXPECT_TRUE(second.ReadEnd(2s)) << "before the first has been idle for too long";
  EXPECT_TRUE(first.ReadEnd(10s));
}

// As `| less` that nobody scrolls, or a collector that hangs.
TEST(Daemon, AnswersAndEndsWhereNobodyReadsItsLog) {
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "log.level=debug"}));
  RawClient client(daemon.Port());
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  for (int i = 0; i < 1500; ++i) {
    client.Send(PostRequest("/v1/completions", "x"));
    ASSERT_EQ(client.ReadResponse().status, 400) << i;
  }
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
}

TEST(Daemon, MakeKeyTellsHowItIsCalled) {
  DaemonProcess help({"make-key", "--help"});
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_NE(help.output().find("usage: refraind make-key --file FILE"), std::string::npos);
  DaemonProcess nothing({"make-key"});
  EXPECT_EQ(nothing.Wait(), StatusOf(ExitStatus::kBadUsage));
}

// The key is nowhere else.
TEST(Daemon, MakeKeyFailsWhereTheKeyCannotBePrinted) {
  TemporaryDirectory folder;
  DaemonProcess command({"make-key", "--file", folder.path() + "/keys", "--name", "a"},
                        {.full_stdout = true});
  EXPECT_EQ(command.Wait(), StatusOf(ExitStatus::kBadUsage));
  EXPECT_NE(command.output().find("cannot print the key"), std::string::npos) << command.output();
}

// As after a deployment that left the file empty, once by mistake and once not.
TEST(Daemon, TellsHowManyKeysThereAre) {
  TemporaryDirectory folder;
  const std::string keys = folder.path() + "/keys";
  DaemonProcess make({"make-key", "--file", keys, "--name", "a"});
  ASSERT_EQ(make.Wait(), 0) << make.output();
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "auth.keys_file=" + keys}));
  ASSERT_TRUE(daemon.WaitForOutput(" info keys count=1")) << daemon.output();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  std::ofstream(keys, std::ios::trunc).close();
  daemon.Signal(SIGHUP);
  EXPECT_TRUE(daemon.WaitForOutput(" error cannot reload, the old one stays in use what=keys"))
      << daemon.output();
  std::ofstream(keys) << "# nobody\n";
  daemon.Signal(SIGHUP);
  EXPECT_TRUE(daemon.WaitForOutput(" warn auth.keys_file holds no key")) << daemon.output();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
}

// Those of the other file open nothing of its.
TEST(Daemon, WarnsOfEachFileOfKeysThatHoldsNone) {
  TemporaryDirectory folder;
  const std::string full = folder.path() + "/full", empty = folder.path() + "/empty";
  DaemonProcess make({"make-key", "--file", full, "--name", "a"});
  ASSERT_EQ(make.Wait(), 0) << make.output();
  std::ofstream(empty).close();
  for (const auto& [of_full, of_empty] : {std::pair("auth.keys_file", "auth.admin_keys_file"),
                                          std::pair("auth.admin_keys_file", "auth.keys_file")}) {
    DaemonProcess daemon(DaemonArguments(
        "fake", {"--set", of_full + ("=" + full), "--set", of_empty + ("=" + empty)}));
    ASSERT_TRUE(daemon.WaitForOutput("ready")) << daemon.output();
    EXPECT_NE(daemon.output().find(std::string(" warn ") + of_empty + " holds no key"),
              std::string::npos)
        << daemon.output();
    EXPECT_EQ(daemon.output().find(std::string(" warn ") + of_full), std::string::npos);
    daemon.Signal(SIGTERM);
    EXPECT_EQ(daemon.Wait(), 0);
  }
}

// Who renews it too late, or not at all, reads why clients stay away.
TEST(Daemon, WarnsOfACertificateThatHasExpired) {
  TemporaryDirectory folder;
  const std::string cert = folder.path() + "/cert.pem";
  const std::string key = folder.path() + "/key.pem";
  const auto write = [&](const testing::PemPair& pair) {
    std::ofstream(cert) << pair.certificate;
    std::ofstream(key) << pair.key;
  };
  write(testing::MakeCertificate("localhost", -60));
  DaemonProcess daemon(
      DaemonArguments("fake", {"--set", "tls.cert_file=" + cert, "--set", "tls.key_file=" + key}));
  ASSERT_TRUE(daemon.WaitForOutput(" warn the TLS certificate has expired")) << daemon.output();
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  write(testing::MakeCertificate("localhost"));
  daemon.Signal(SIGHUP);
  EXPECT_TRUE(daemon.WaitForOutput(" info tls expires=")) << daemon.output();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
}

TEST(Daemon, SaysWhenItLogsNoMoreUnknownFields) {
  DaemonProcess daemon(DaemonArguments("fake"));
  RawClient client(daemon.Port());
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  std::string body = R"({"prompt":"a")";
  for (int i = 0; i < 300; ++i) body += ",\"made_up_" + std::to_string(i) + "\":1";
  client.Send(PostRequest("/v1/completions", body + "}"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_TRUE(daemon.WaitForOutput("no more are logged fields=256"));
  EXPECT_NE(daemon.output().find("field=made_up_"), std::string::npos);
}

TEST(Daemon, LogsAnUnknownFieldOnce) {
  DaemonProcess daemon(DaemonArguments("fake"));
  RawClient client(daemon.Port());
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  for (const char* field : {"made_up", "made_up", "another"}) {
    client.Send(
        PostRequest("/v1/completions", std::string(R"({"prompt":"a",")") + field + R"(":1})"));
    EXPECT_EQ(client.ReadResponse().status, 200);
  }
  ASSERT_TRUE(daemon.WaitForOutput("field=another"));
  const std::string log = daemon.output();
  const size_t first = log.find("field=made_up");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(log.find("field=made_up", first + 1), std::string::npos) << log;
}

// Also where what a client sends is a name, at any level.
TEST(Daemon, LogsNoTextOfAClientAsTheNameOfAField) {
  TemporaryDirectory folder;
  const std::string path = folder.path() + "/requests.jsonl";
  DaemonProcess daemon(
      DaemonArguments("fake", {"--set", "log.level=trace", "--set", "log.requests_file=" + path}));
  RawClient client(daemon.Port());
  ASSERT_TRUE(daemon.WaitForOutput("ready"));
  client.Send(PostRequest("/v1/completions", R"({"prompt":"a","My secret":1,"made_up":1})"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  client.Send(
      PostRequest("/v1/completions", R"({"prompt":"a","structured_outputs":{"My secret":1}})"));
  const RawResponse refused = client.ReadResponse();
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("structured_outputs.My secret"), std::string::npos) << refused.body;
  ASSERT_TRUE(daemon.WaitForOutput("param=\"(a name of the client's)\"")) << daemon.output();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
  const std::string log = daemon.output();
  EXPECT_NE(log.find("field=\"(a name of the client's)\""), std::string::npos) << log;
  EXPECT_NE(log.find("field=made_up"), std::string::npos) << log;
  std::ifstream file(path);
  const std::string lines{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(lines.find(R"_("param":"(a name of the client's)")_"), std::string::npos) << lines;
  for (const std::string& written : {log, lines}) {
    EXPECT_EQ(written.find("secret"), std::string::npos) << written;
  }
}

TEST(Daemon, ShowsTheCacheOnlyWhereDebugIsOn) {
  for (const bool debug : {false, true}) {
    DaemonProcess daemon(
        DaemonArguments("fake", {"--set", debug ? "server.debug=on" : "server.debug=off"}));
    const uint16_t port = daemon.Port();
    ASSERT_TRUE(daemon.WaitForOutput("ready"));
    RawClient client(port);
    client.Send(GetRequest("/debug/cache?limit=5"));
    const RawResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, debug ? 200 : 404);
    EXPECT_EQ(response.body.starts_with("{\"totals\":"), debug) << response.body;
  }
}

// As systemd's Type=notify asks for it, over a socket with a path and over an abstract one.
TEST(Daemon, TellsTheServiceManagerWhenItIsReadyAndWhenItStops) {
  // The name of a socket may be 107 bytes long: no place below the test's own folder.
  const std::string path = "/tmp/refrain-notify-" + std::to_string(::getpid());
  for (const std::string& name : {path, "@" + path}) {
    const int fd = BindSocket(name);
    ASSERT_GE(fd, 0);
    const timeval limit{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const auto receive = [&] {
      char text[64];
      const ssize_t length = ::recv(fd, text, sizeof(text), 0);
      return length < 0 ? std::string("nothing") : std::string(text, length);
    };
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    DaemonProcess daemon(DaemonArguments("fake"));
    ::unsetenv("NOTIFY_SOCKET");
    EXPECT_EQ(receive(), "READY=1");
    daemon.Signal(SIGTERM);
    EXPECT_EQ(receive(), "STOPPING=1");
    EXPECT_EQ(daemon.Wait(), 0);
    ::close(fd);
    ::unlink(name.c_str());
  }
}

TEST(Daemon, LogsJsonLinesOnRequest) {
  DaemonProcess daemon(DaemonArguments("fake", {"--set", "log.format=json"}));
  ASSERT_TRUE(daemon.WaitForOutput("\"event\":\"ready\",\"model\":\"fake-model\""))
      << daemon.output();
  const std::string number = "\"max_context_tokens\":";
  const size_t at = daemon.output().find(number);
  ASSERT_NE(at, std::string::npos);
  EXPECT_TRUE(std::isdigit(daemon.output()[at + number.size()])) << daemon.output();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
  EXPECT_NE(daemon.output().find("\"event\":\"draining\",\"limit_s\":30,"), std::string::npos)
      << daemon.output();
}

}  // namespace
}  // namespace refrain::server
