#include "server/task_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace refrain::server
