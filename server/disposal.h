#ifndef REFRAIN_SERVER_DISPOSAL_H_
#define REFRAIN_SERVER_DISPOSAL_H_

#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "engine/token_stream.h"
#include "server/task_queue.h"

namespace refrain::server {

// Destroys what is large on a thread of its own. An answer that nobody reads may be hundreds of
// thousands of small blocks: freeing them takes tens of milliseconds, for which neither the
// engine's thread nor one that serves connections may be kept. What waits here is counted by
// nobody, and is gone long before as much can have been made again.
//
// Any thread; never blocks and never fails: where there is no memory for it, or the system has
// refused the thread, things are destroyed there and then.
class Disposal {
 public:
  Disposal();

  // It holds no reference to the Disposal's owner.
  template <typename T>
  void Take(T garbage) noexcept {
    if (!thread_.has_value()) return;
    try {
      Post(std::make_shared<T>(std::move(garbage)));
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  // A few are destroyed at once.
  void TakeTokens(std::vector<engine::TokenEvent> tokens) noexcept {
    constexpr size_t kFewTokens = 64;
    if (tokens.size() > kFewTokens) Take(std::move(tokens));
  }

 private:
  void Post(std::shared_ptr<void> garbage) {
    thread_->Post("", [garbage = std::move(garbage)]() mutable { garbage.reset(); });
  }

  std::optional<TaskQueue> thread_;  // none where it was refused
};

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_DISPOSAL_H_
