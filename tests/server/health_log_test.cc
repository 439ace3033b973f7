#include "server/health_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "server/log.h"

namespace refrain::server {
namespace {

// What is logged where the engine's health is found like this, one look after the other.
std::string LogOf(const std::vector<absl::Status>& looks) {
  ::testing::internal::CaptureStderr();
  {
    Log log(LogFormat::kText, LogLevel::kInfo);
    HealthLog health(&log);
    for (const absl::Status& look : looks) health.Look(look);
  }
  return ::testing::internal::GetCapturedStderr();
}

int64_t LinesOf(const std::string& log) { return std::ranges::count(log, '\n'); }

TEST(HealthLogTest, SaysNothingWhileTheEngineIsWell) {
  EXPECT_EQ(LogOf({absl::OkStatus(), absl::OkStatus()}), "");
}

TEST(HealthLogTest, TellsOfEachStallAndItsEndOnce) {
  const absl::Status stalled = absl::UnavailableError("for 300 s"),
                     later = absl::UnavailableError("for 301 s");
  const std::string log =
      LogOf({absl::OkStatus(), stalled, later, later, absl::OkStatus(), absl::OkStatus(), later});
  EXPECT_EQ(LinesOf(log), 3) << log;
  const size_t begin = log.find(" error the engine is stalled: requests wait status=\"for 300 s\"");
  const size_t end = log.find(" info the engine gets on again\n");
  const size_t again = log.find("status=\"for 301 s\"");
  ASSERT_NE(begin, std::string::npos) << log;
  ASSERT_NE(again, std::string::npos) << log;
  EXPECT_LT(begin, end);
  EXPECT_LT(end, again) << log;
}

// A device that hung is lost: nobody waits for it any more.
TEST(HealthLogTest, TellsOfADeathBehindAStall) {
  const absl::Status dead = absl::InternalError("device lost");
  const std::string log = LogOf({absl::UnavailableError("for 300 s"), dead, dead});
  EXPECT_EQ(LinesOf(log), 2) << log;
  EXPECT_NE(log.find(" error the engine is dead: the daemon should be restarted "
                     "status=\"device lost\"\n"),
            std::string::npos)
      << log;
}

}  // namespace
}  // namespace refrain::server
