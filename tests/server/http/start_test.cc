// A start for which the system lacks something.

#include <gtest/gtest.h>

#include <string>

#include "server/http/router.h"
#include "server/http/server.h"
#include "tests/support/files_left.h"
#include "tests/support/little_room.h"

namespace refrain::server::http {
namespace {

using ::refrain::testing::FilesLeft;

// The event loops have files, and the port is one.
TEST(HttpServerStart, SaysWhichLimitsThereAreWhereTheSystemRefusesAFile) {
#ifndef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
  GTEST_SKIP() << "UBSan looks at objects through a pipe, for which no file is left";
#endif
  const Router router;
  int files = 0;
  for (;; ++files) {
    ASSERT_LT(files, 100);
    const FilesLeft few(files);
    const auto server = Server::Start({}, &router);
    if (server.ok()) break;
    const std::string text(server.status().message());
    EXPECT_NE(text.find("ulimit -n"), std::string::npos) << files << ": " << text;
  }
  EXPECT_GT(files, 2);
}

}  // namespace
}  // namespace refrain::server::http
