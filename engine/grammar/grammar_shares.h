#ifndef REFRAIN_ENGINE_GRAMMAR_GRAMMAR_SHARES_H_
#define REFRAIN_ENGINE_GRAMMAR_GRAMMAR_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "engine/annotated_mutex.h"
#include "engine/clock.h"
#include "engine/drain_meter.h"

namespace refrain::engine {

// The bytes of all grammars in being, and of whose requests they are. A tenant may have as many as
// are left free: alone half of `most_bytes`, and others always find some (as server's ByteBudget).
// It also measures how fast grammars go while they are so many that a tenant may be refused one, to
// tell that one when to come back. Any thread; cannot fail, but where Add finds no memory, which it
// throws, nothing is added.
class GrammarShares {
 public:
  // `clock` outlives it; null = the steady clock.
  explicit GrammarShares(size_t most_bytes, const Clock* clock = nullptr)
      : most_bytes_(most_bytes), clock_(clock) {}

  // Nothing where the tenant may have one more grammar; else in how many seconds it may, as fast as
  // grammars have been going.
  std::optional<double> SecondsUntilShare(const std::string& tenant) const;
  void Add(const std::string& tenant, size_t bytes);
  void Subtract(const std::string& tenant, size_t bytes);  // one that was added

  size_t bytes() const;
  size_t most_bytes() const { return most_bytes_; }

 private:
  // From here on somebody may be refused: it takes one who has all.
  bool IsCrowded() const REFRAIN_REQUIRES(mutex_) { return 2 * bytes_ >= most_bytes_; }
  Clock::TimePoint Now() const;

  const size_t most_bytes_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  size_t bytes_ REFRAIN_GUARDED_BY(mutex_) = 0;
  int64_t grammars_ REFRAIN_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, size_t> by_tenant_ REFRAIN_GUARDED_BY(mutex_);  // not 0
  DrainMeter gone_ REFRAIN_GUARDED_BY(mutex_);  // grammars, while it is crowded
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_GRAMMAR_SHARES_H_
