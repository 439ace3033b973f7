#include "server/accept_warning.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <new>
#include <string>

#include "tests/support/heap_counts.h"

namespace refrain::server {
namespace {

using ::refrain::testing::HeapCountsOfThread;

// What a call writes, of which that many allocations succeed.
std::string Written(AcceptWarning* warning, int error, int64_t until_refused = -1) {
  ::testing::internal::CaptureStderr();
  HeapCountsOfThread().until_refused = until_refused;
  try {
    (*warning)(error);
  } catch (const std::bad_alloc&) {
  }
  HeapCountsOfThread().until_refused = -1;
  return ::testing::internal::GetCapturedStderr();
}

TEST(AcceptWarningTest, IsGivenOnceInAPeriod) {
  Log log(LogFormat::kText, LogLevel::kInfo);
  AcceptWarning warning(&log, "HTTP");
  const std::string line = Written(&warning, EMFILE);
  EXPECT_NE(line.find("Too many open files"), std::string::npos) << line;
  EXPECT_NE(line.find("HTTP"), std::string::npos) << line;
  EXPECT_EQ(Written(&warning, EMFILE), "");
}

// Scenario: memory is refused, to a connection and to the warning of it, and is there a moment
// later.
TEST(AcceptWarningTest, IsGivenAtTheNextTryWhereThereWasNoMemoryForIt) {
  Log log(LogFormat::kText, LogLevel::kInfo);
  AcceptWarning warning(&log, "HTTP");
  ASSERT_EQ(Written(&warning, ENOMEM, /*until_refused=*/0), "");
  EXPECT_NE(Written(&warning, ENOMEM).find("Cannot allocate memory"), std::string::npos);
}

}  // namespace
}  // namespace refrain::server
