#include "server/with_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <system_error>

namespace refrain::server {
namespace {

using ::testing::HasSubstr;

std::string Refused(std::errc what) {
  const absl::Status status =
      WithThreads([&]() -> absl::Status { throw std::system_error(std::make_error_code(what)); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  return std::string(status.message());
}

TEST(WithThreads, NamesTheLimitOfWhatTheSystemRefuses) {
  EXPECT_THAT(Refused(std::errc::resource_unavailable_try_again), HasSubstr("ulimit -u"));
  EXPECT_THAT(Refused(std::errc::too_many_files_open), HasSubstr("ulimit -n"));
  EXPECT_THAT(Refused(std::errc::too_many_files_open_in_system), HasSubstr("fs.file-max"));
  const absl::Status memory = WithThreads([]() -> absl::Status { throw std::bad_alloc(); });
  EXPECT_THAT(std::string(memory.message()), HasSubstr("ulimit -v"));
}

TEST(WithThreads, PassesOnWhatTheStartReturns) {
  EXPECT_TRUE(WithThreads([] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(WithThreads([] { return absl::NotFoundError("x"); }), absl::NotFoundError("x"));
}

}  // namespace
}  // namespace refrain::server
