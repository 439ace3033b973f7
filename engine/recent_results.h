#ifndef REFRAIN_ENGINE_RECENT_RESULTS_H_
#define REFRAIN_ENGINE_RECENT_RESULTS_H_

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "engine/annotated_mutex.h"

namespace refrain::engine {

// What was made of the last few keys: the prompts of one call ask for the same again and again,
// those of several calls in turn. `Key` compares by == and holds what makes it equal, so that no
// other becomes equal to it when the caller's is gone. `Result` is cheap to copy. Any thread; what
// is dropped is freed outside of the lock. Cannot fail.
template <class Key, class Result>
class RecentResults {
 public:
  std::optional<Result> FindOrNone(const Key& key) const {
    const MutexLock lock(mutex_);
    for (const auto& kept : kept_) {
      if (kept.has_value() && kept->first == key) return kept->second;
    }
    return std::nullopt;
  }

  // In the place of the oldest.
  void Keep(Key key, Result result) {
    std::optional<std::pair<Key, Result>> dropped(std::in_place, std::move(key), std::move(result));
    const MutexLock lock(mutex_);
    std::swap(kept_[next_], dropped);
    next_ = (next_ + 1) % kept_.size();
  }

 private:
  static constexpr size_t kKept = 8;

  mutable Mutex mutex_;
  std::array<std::optional<std::pair<Key, Result>>, kKept> kept_ REFRAIN_GUARDED_BY(mutex_);
  size_t next_ REFRAIN_GUARDED_BY(mutex_) = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_RECENT_RESULTS_H_
