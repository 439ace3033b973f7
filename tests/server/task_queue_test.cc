#include "server/task_queue.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "tests/support/little_room.h"

namespace refrain::server {
namespace {

TEST(TaskQueue, OwnersTakeTurns) {
  std::mutex mutex;
  std::vector<std::string> done;
  std::promise<void> go;
  {
    TaskQueue queue(1, TaskQueue::Tasks::kLong);
    queue.Post("first", [held = go.get_future().share()] { held.wait(); });
    const auto post = [&](const std::string& owner, const std::string& name) {
      queue.Post(owner, [&, name] {
        std::lock_guard lock(mutex);
        done.push_back(name);
      });
    };
    for (int i = 0; i < 100; ++i) post("many", "m" + std::to_string(i));
    post("few", "f0");
    post("", "n0");
    post("few", "f1");
    go.set_value();
  }  // runs what is left
  ASSERT_EQ(done.size(), 103u);
  done.resize(6);
  EXPECT_EQ(done, (std::vector<std::string>{"m0", "f0", "n0", "m1", "f1", "m2"}));
}

#ifdef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
TEST(TaskQueueLimits, EndsTheThreadsThatItHasWhereTheSystemRefusesOne) {
  const auto with_little_room = [] {
    ::refrain::testing::LeaveLittleRoom();
    try {
      TaskQueue queue(100, TaskQueue::Tasks::kLong);
    } catch (const std::system_error&) {
      std::exit(0);
    }
  };
  EXPECT_EXIT(with_little_room(), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace refrain::server
