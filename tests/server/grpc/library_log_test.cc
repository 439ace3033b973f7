#include "server/grpc/library_log.h"

#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "server/log.h"

namespace refrain::server::rpc {
namespace {

// Strangers choose what it says, and how often.
TEST(GrpcLibraryLogTest, WhatTheLibrarySaysIsALineOfOurs) {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // gRPC's own, from its first server on
  for (const LogLevel level : {LogLevel::kInfo, LogLevel::kDebug}) {
    ::testing::internal::CaptureStderr();
    {
      Log log(LogFormat::kJson, level);
      const LibraryLog library_log(&log);
      gpr_log("some/file.cc", 12, GPR_LOG_SEVERITY_ERROR, "key=%s", "te value=1\n{\"forged\": 1}");
    }
    gpr_log("some/file.cc", 13, GPR_LOG_SEVERITY_ERROR, "behind it");
    gpr_log("f.cc", 14, GPR_LOG_SEVERITY_ERROR, "assertion failed: %s", "1 == 2");
    gpr_log("f.cc", 15, GPR_LOG_SEVERITY_ERROR, "UNREACHABLE CODE: %s", "here");
    std::string written = ::testing::internal::GetCapturedStderr();
    const std::string last_words =
        "f.cc:14: assertion failed: 1 == 2\nf.cc:15: UNREACHABLE CODE: here\n";
    ASSERT_TRUE(written.ends_with(last_words)) << written;
    written.resize(written.size() - last_words.size());
    EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), level == LogLevel::kDebug ? 1 : 0)
        << written;
    EXPECT_EQ(written.find("behind it"), std::string::npos) << written;
    if (level == LogLevel::kDebug) {
      EXPECT_NE(written.find(R"(te value=1\n{\"forged\": 1})"), std::string::npos) << written;
    }
  }
}

}  // namespace
}  // namespace refrain::server::rpc
