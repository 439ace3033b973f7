#include "server/request_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/log.h"
#include "tests/support/eventually.h"

namespace refrain::server {
namespace {

using ::refrain::testing::Eventually;
using ::testing::HasSubstr;

http::Exchange Answered(const std::string& details = "") {
  http::Exchange exchange;
  exchange.request_id = "r";
  exchange.method = "POST";
  exchange.route = "/v1/completions";
  exchange.details = details;
  exchange.status = 200;
  return exchange;
}

size_t Occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class RequestLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    ::testing::internal::CaptureStderr();
  }
  void TearDown() override {
    if (!said_) Said();
  }

  // What the log said; once.
  std::string Said() {
    said_ = true;
    return ::testing::internal::GetCapturedStderr();
  }

  bool said_ = false;

  Log log_{LogFormat::kText, LogLevel::kInfo};
};

TEST_F(RequestLogTest, ADiskThatTakesAllLosesNothing) {
  const std::string path = ::testing::TempDir() + "/requests.jsonl";
  auto requests = *RequestLog::Open(path);
  requests->WarnTo(&log_);
  for (int i = 0; i < 100; ++i) requests->Write(Answered());
  EXPECT_EQ(requests->dropped_lines(), 0);
  requests.reset();
  std::ifstream file(path);
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(file), {}, '\n'), 100);
  EXPECT_EQ(Said(), "");
}

// A pipe that nobody reads takes 64 KiB.
TEST_F(RequestLogTest, ASlowDiskLosesLinesThatAreCountedAndWarnedOfOnce) {
  const std::string path = ::testing::TempDir() + "/requests.fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  auto requests = *RequestLog::Open(path);
  requests->WarnTo(&log_);
  const std::string megabyte = "\"x\":\"" + std::string(1 << 20, 'x') + "\"";
  for (int i = 0; i < 40; ++i) requests->Write(Answered(megabyte));
  // At most 16 MiB wait and as many are on their way.
  EXPECT_GE(requests->dropped_lines(), 8);
  EXPECT_LE(requests->dropped_lines(), 25);
  ::close(reader);
  requests.reset();
  const std::string said = Said();
  EXPECT_EQ(Occurrences(said, " warn "), 1u) << said;
  EXPECT_THAT(said, HasSubstr("the disk is too slow"));
  ::unlink(path.c_str());
}

// As standard output is where what collects it has stopped reading.
TEST_F(RequestLogTest, APipeThatNobodyReadsHoldsUpNeitherTheEndNorAReload) {
  const std::string path = ::testing::TempDir() + "/stalled.fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(RequestLog::Open(path).ok()) << "nobody has opened it";
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  auto requests = *RequestLog::Open(path);
  requests->WarnTo(&log_);
  for (int i = 0; i < 1000; ++i) requests->Write(Answered());
  EXPECT_TRUE(requests->Reopen().ok());
  for (int i = 0; i < 1000; ++i) requests->Write(Answered());
  requests.reset();
  ::close(reader);
  EXPECT_THAT(Said(), HasSubstr("the file takes no more"));
  ::unlink(path.c_str());
}

// What is written is whole where its reader is only slow.
TEST_F(RequestLogTest, APipeThatIsReadSlowlyLosesNothing) {
  const std::string path = ::testing::TempDir() + "/slow.fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  auto requests = *RequestLog::Open(path);
  requests->WarnTo(&log_);
  for (int i = 0; i < 2000; ++i) requests->Write(Answered());
  std::string read;
  std::thread slow([&] {
    char buffer[16384];
    for (;;) {
      ::usleep(10'000);
      const ssize_t bytes = ::read(reader, buffer, sizeof(buffer));
      if (bytes == 0) return;  // closed by who writes
      if (bytes > 0) read.append(buffer, static_cast<size_t>(bytes));
    }
  });
  requests.reset();
  slow.join();
  ::close(reader);
  EXPECT_EQ(std::count(read.begin(), read.end(), '\n'), 2000);
  EXPECT_EQ(Said(), "");
  ::unlink(path.c_str());
}

TEST_F(RequestLogTest, AFullDiskLosesLinesThatAreCountedAndWarnedOfOnce) {
  auto requests = *RequestLog::Open("/dev/full");
  requests->WarnTo(&log_);
  for (int i = 0; i < 3; ++i) requests->Write(Answered());
  EXPECT_TRUE(Eventually([&] { return requests->dropped_lines() >= 3; }));
  EXPECT_EQ(requests->dropped_lines(), 3);
  requests.reset();
  const std::string said = Said();
  EXPECT_EQ(Occurrences(said, " warn "), 1u) << said;
  EXPECT_THAT(said, HasSubstr("the file takes no more"));
}

// Standard error, a file here, goes on where it stood itself: what is appended is written over.
TEST_F(RequestLogTest, SharesAFileWithTheLog) {
  for (const std::string& path : {std::string("/dev/stderr"), ::testing::TempDir() + "/link"}) {
    if (path != "/dev/stderr") std::filesystem::create_symlink("/proc/self/fd/2", path);
    EXPECT_TRUE(RequestLog::Check(path).ok());
    auto requests = *RequestLog::Open(path);
    for (const char* event : {"first", "second"}) {
      log_.Info(event);
      requests->Write(Answered());
      EXPECT_TRUE(requests->Reopen().ok());
    }
    requests.reset();
    log_.Info("last");
  }
  const std::string said = Said();
  EXPECT_EQ(Occurrences(said, "{\"ts\":"), 4u) << said;
  EXPECT_EQ(Occurrences(said, " info "), 6u) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 10) << said;
  std::filesystem::remove(::testing::TempDir() + "/link");
}

// As logrotate's copytruncate does.
TEST_F(RequestLogTest, AFileThatIsTheLogsTooMayBeTruncated) {
  auto requests = *RequestLog::Open("/dev/stderr");
  const auto write_both = [&](const char* event) {
    struct stat before {};
    EXPECT_EQ(::fstat(STDERR_FILENO, &before), 0);
    requests->Write(Answered());
    EXPECT_TRUE(Eventually([&] {
      struct stat now {};
      return ::fstat(STDERR_FILENO, &now) == 0 && now.st_size > before.st_size;
    }));
    log_.Info(event);
  };
  write_both("first");
  EXPECT_EQ(::ftruncate(STDERR_FILENO, 0), 0);
  write_both("second");
  EXPECT_TRUE(requests->Reopen().ok());
  EXPECT_EQ(::ftruncate(STDERR_FILENO, 0), 0);
  write_both("third");
  requests.reset();
  const std::string said = Said();
  EXPECT_EQ(said.find('\0'), std::string::npos);
  EXPECT_EQ(Occurrences(said, "{\"ts\":"), 1u) << said;
  EXPECT_EQ(Occurrences(said, " info "), 1u) << said;
}

// As with `> FILE 2> FILE`.
TEST_F(RequestLogTest, AFileMayBeStandardOutputAndErrorByThemselves) {
  const int output = ::dup(STDOUT_FILENO);
  const int again = ::open("/proc/self/fd/2", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(again, 0);
  ASSERT_EQ(::dup2(again, STDOUT_FILENO), STDOUT_FILENO);
  auto requests = *RequestLog::Open("/dev/stdout");
  for (const char* event : {"first", "second"}) {
    requests->Write(Answered());
    EXPECT_TRUE(requests->Reopen().ok());
    log_.Info(event);
  }
  requests.reset();
  ::dup2(output, STDOUT_FILENO);
  ::close(output);
  ::close(again);
  const std::string said = Said();
  EXPECT_EQ(Occurrences(said, "{\"ts\":"), 2u) << said;
  EXPECT_EQ(Occurrences(said, " info "), 2u) << said;
}

// The disk fills up inside a line and has room again later.
TEST_F(RequestLogTest, TheLineAfterAnInterruptedOneIsALineOfItsOwn) {
  const std::string path = ::testing::TempDir() + "/interrupted.jsonl";
  ::unlink(path.c_str());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  auto requests = *RequestLog::Open(path);
  requests->WarnTo(&log_);
  const rlimit small = {100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  requests->Write(Answered("\"lost\":\"" + std::string(200, 'x') + "\""));
  EXPECT_TRUE(Eventually([&] { return requests->dropped_lines() >= 1; }));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, ignored);
  EXPECT_EQ(requests->dropped_lines(), 1);
  requests->Write(Answered("\"kept\":1"));
  requests.reset();
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), 100u);
  EXPECT_TRUE(lines[1].starts_with("{")) << lines[1];
  EXPECT_THAT(lines[1], HasSubstr("\"kept\":1"));
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace refrain::server
