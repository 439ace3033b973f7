#include "server/request_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "server/log.h"

namespace refrain::server {
namespace {

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
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
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
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(Occurrences(said, " warn "), 1u) << said;
  EXPECT_THAT(said, HasSubstr("the disk is too slow"));
  ::unlink(path.c_str());
}

TEST_F(RequestLogTest, AFullDiskLosesLinesThatAreCountedAndWarnedOfOnce) {
  auto requests = *RequestLog::Open("/dev/full");
  requests->WarnTo(&log_);
  for (int i = 0; i < 3; ++i) requests->Write(Answered());
  for (int i = 0; i < 500 && requests->dropped_lines() < 3; ++i) ::usleep(10'000);
  EXPECT_EQ(requests->dropped_lines(), 3);
  requests.reset();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(Occurrences(said, " warn "), 1u) << said;
  EXPECT_THAT(said, HasSubstr("the file takes no more"));
}

}  // namespace
}  // namespace refrain::server
