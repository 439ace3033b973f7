#include "server/access/api_keys.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "server/access/make_key_command.h"
#include "tests/support/temporary_directory.h"

namespace refrain::server::access {
namespace {

NewKey Make(std::string_view name, const KeyTerms& terms = {}) {
  absl::StatusOr<NewKey> made = MakeKey(name, terms);
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

std::string ErrorOf(std::string_view text) {
  const absl::StatusOr<KeyRing> ring = KeyRing::Parse(text, "keys");
  return ring.ok() ? "" : std::string(ring.status().message());
}

TEST(KeyRing, KnowsTheKeysOfItsFile) {
  const NewKey a = Make("team-a", {.weight = 2.5, .requests = 8, .tokens_per_s = 1000.0});
  const NewKey b = Make("team-b");
  const auto ring = KeyRing::Parse("# keys\n\n" + a.line + "  \r\n" + b.line, "keys");
  ASSERT_TRUE(ring.ok()) << ring.status();
  ASSERT_NE(ring->FindOrNull(a.key), nullptr);
  EXPECT_EQ(ring->FindOrNull(a.key)->name, "team-a");
  EXPECT_EQ(ring->FindOrNull(a.key)->terms,
            (KeyTerms{.weight = 2.5, .requests = 8, .tokens_per_s = 1000.0}));
  EXPECT_EQ(ring->FindOrNull(b.key)->name, "team-b");
  EXPECT_EQ(ring->FindOrNull(Make("team-a").key), nullptr);
}

// Every character counts, the first and the last.
TEST(KeyRing, RefusesAKeyThatIsOffByOneCharacter) {
  const NewKey made = Make("a");
  const auto ring = KeyRing::Parse(made.line, "keys");
  ASSERT_TRUE(ring.ok());
  for (size_t i = 0; i < made.key.size(); ++i) {
    std::string wrong = made.key;
    wrong[i] = wrong[i] == '0' ? '1' : '0';
    EXPECT_EQ(ring->FindOrNull(wrong), nullptr) << i;
  }
  EXPECT_EQ(ring->FindOrNull(made.key.substr(0, made.key.size() - 1)), nullptr);
  EXPECT_EQ(ring->FindOrNull(made.key + "0"), nullptr);
  EXPECT_EQ(ring->FindOrNull(""), nullptr);
}

// Whoever reads the file learns no key: neither it nor a plain hash of it is there.
TEST(KeyRing, HoldsNoKeyInTheClear) {
  const NewKey made = Make("a");
  const std::string secret = made.key.substr(made.key.rfind('-') + 1);
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(made.line.find(secret), std::string::npos);
  EXPECT_NE(Make("a").line, made.line);
}

// Two keys of one name: the old one and its replacement.
TEST(KeyRing, HoldsSeveralKeysOfOneName) {
  const NewKey old_key = Make("a", {.weight = 2});
  const NewKey new_key = Make("a", {.weight = 2});
  const auto ring = KeyRing::Parse(old_key.line + new_key.line, "keys");
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ(ring->FindOrNull(old_key.key)->name, ring->FindOrNull(new_key.key)->name);
  EXPECT_NE(ErrorOf(old_key.line + Make("a", {.weight = 3}).line).find("line 2"),
            std::string::npos);
}

TEST(KeyRing, SaysWhichLineIsWrong) {
  const std::string good = Make("a").line;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string line = good;
    return "\n" + line.replace(line.find(from), from.size(), to);
  };
  for (const std::string& text : {
           std::string("\nnonsense"),
           std::string("\n[]"),
           with("\"a\"", "\"\""),
           with("\"a\"", "\"a b\""),
           with("\"a\"", "7"),
           with("rk-", "sk-"),
           with("\"sha256\":\"", "\"sha256\":\"0"),
           with("\"salt\"", "\"sugar\""),
           with("}", ",\"weight\":0}"),
           with("}", ",\"weight\":-1}"),
           with("}", ",\"requests\":-1}"),
           with("}", ",\"requests\":1.5}"),
           with("}", ",\"tokens_per_s\":-1}"),
           with("}", ",\"name\":\"b\"}"),
       }) {
    const std::string error = ErrorOf(text);
    EXPECT_NE(error.find("keys: line 2: "), std::string::npos) << text << "\n" << error;
  }
  EXPECT_NE(ErrorOf(good + good).find("was there before"), std::string::npos);
}

TEST(MakeKeyCommand, AddsToTheFileAndShowsTheKeyOnce) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/keys";
  const auto run = [&](std::vector<const char*> arguments) { return RunMakeKey(arguments); };
  const auto first = run({"--file", path.c_str(), "--name", "a", "--weight", "2"});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second =
      run({"--file", path.c_str(), "--name", "b", "--requests", "3", "--tokens-per-s", "50"});
  ASSERT_TRUE(second.ok()) << second.status();
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  std::ifstream file(path);
  const auto ring = KeyRing::Parse(std::string{std::istreambuf_iterator<char>(file), {}}, path);
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ(ring->FindOrNull(*first)->terms.weight, 2);
  EXPECT_EQ(ring->FindOrNull(*second)->terms.requests, 3);
  EXPECT_EQ(ring->FindOrNull(*second)->terms.tokens_per_s, 50);
  EXPECT_FALSE(run({"--file", path.c_str()}).ok());
  EXPECT_FALSE(run({"--file", path.c_str(), "--name", "a", "--weight", "x"}).ok());
  EXPECT_FALSE(run({"--file", path.c_str(), "--name", "a", "--colour", "x"}).ok());
  EXPECT_FALSE(run({"--file", path.c_str(), "--name"}).ok());
}

// With half a line in it the daemon would read no key at all.
TEST(MakeKeyCommand, AFullDiskLeavesTheFileAsItWas) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/keys";
  const auto add = [&](const char* name) {
    return RunMakeKey(std::vector<const char*>{"--file", path.c_str(), "--name", name});
  };
  ASSERT_TRUE(add("a").ok());
  const std::string before = *ReadKeyFile(path);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {before.size() + 20, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const auto failed = add("b");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  ::signal(SIGXFSZ, ignored);
  EXPECT_NE(failed.status().message().find("File too large"), std::string::npos) << failed.status();
  EXPECT_EQ(*ReadKeyFile(path), before);
}

// An empty one would open to nobody.
TEST(MakeKeyCommand, AFullDiskLeavesNoFileWhereThereWasNone) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/keys";
  const std::vector<const char*> arguments = {"--file", path.c_str(), "--name", "a"};
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {20, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const auto failed = RunMakeKey(arguments);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  ::signal(SIGXFSZ, ignored);
  EXPECT_NE(failed.status().message().find("File too large"), std::string::npos) << failed.status();
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), -1);
  EXPECT_TRUE(RunMakeKey(arguments).ok());
}

// Scenario: the call that made the file fails while this one waits for it.
TEST(MakeKeyCommand, AddsToNoFileThatAnotherCallHasTakenAway) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/keys";
  const int other = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(other, 0);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  absl::StatusOr<std::string> made;
  std::thread call([&] {
    made = RunMakeKey(std::vector<const char*>{"--file", path.c_str(), "--name", "a"});
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(::unlink(path.c_str()), 0);
  ::close(other);
  call.join();
  ASSERT_TRUE(made.ok()) << made.status();
  const auto ring = KeyRing::Parse(*ReadKeyFile(path), path);
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_NE(ring->FindOrNull(*made), nullptr);
}

// There is none but that one.
TEST(MakeKeyCommand, AddsToAnUnlinkedFileWherePathNamesIt) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/keys";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::unlink(path.c_str()), 0);
  const std::string opened = "/dev/fd/" + std::to_string(file);
  const auto made = RunMakeKey(std::vector<const char*>{"--file", opened.c_str(), "--name", "a"});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto ring = KeyRing::Parse(*ReadKeyFile(opened), opened);
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_NE(ring->FindOrNull(*made), nullptr);
  ::close(file);
}

TEST(MakeKeyCommand, LeavesNoFileThatTheDaemonWouldRefuse) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/keys";
  const auto add = [&](const char* name, const char* weight) {
    return RunMakeKey(
        std::vector<const char*>{"--file", path.c_str(), "--name", name, "--weight", weight});
  };
  const auto text = [&] { return *ReadKeyFile(path); };
  const auto first = add("a", "2");
  ASSERT_TRUE(first.ok());
  // As editors may leave it.
  const std::string line = text();
  std::ofstream(path) << line.substr(0, line.size() - 1);
  const auto second = add("b", "1");
  ASSERT_TRUE(second.ok()) << second.status();
  const auto ring = KeyRing::Parse(text(), path);
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_NE(ring->FindOrNull(*first), nullptr);
  EXPECT_NE(ring->FindOrNull(*second), nullptr);

  const std::string before = text();
  EXPECT_EQ(add("a", "3").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(text(), before);
  EXPECT_TRUE(add("a", "2").ok());
  std::ofstream(path) << "no key\n";
  EXPECT_EQ(add("c", "1").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(text(), "no key\n");
}

// Another call has begun: what it adds is seen by this one, which would not go with it.
TEST(MakeKeyCommand, WaitsForAnotherCallBeforeItLooksAtTheFile) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/keys";
  const int other = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(other, 0);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  absl::StatusOr<std::string> made;
  std::thread call([&] {
    made = RunMakeKey(
        std::vector<const char*>{"--file", path.c_str(), "--name", "a", "--weight", "3"});
  });
  // As long as it takes to come to the lock; were it less, nothing would be shown.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::string line = Make("a", {.weight = 2}).line;
  EXPECT_EQ(::write(other, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  ::close(other);
  call.join();
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << made.status();
  EXPECT_NE(made.status().message().find("the keys of \"a\" must have the same weight"),
            std::string::npos)
      << made.status();
  EXPECT_EQ(*ReadKeyFile(path), line);
}

}  // namespace
}  // namespace refrain::server::access
