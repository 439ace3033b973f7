#ifndef REFRAIN_TESTS_SUPPORT_EXPECT_ERROR_H_
#define REFRAIN_TESTS_SUPPORT_EXPECT_ERROR_H_

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace refrain::testing {

// Fails the test unless the status has this code and `text` is somewhere in its message.
inline void ExpectError(const absl::Status& status, absl::StatusCode code, std::string_view text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
}

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_EXPECT_ERROR_H_
