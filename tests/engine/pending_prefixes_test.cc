#include "engine/pending_prefixes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "engine/prefix_keys.h"

namespace refrain::engine {
namespace {

using Released = PendingPrefixes::Released;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

SequenceId Id(uint64_t id) { return SequenceId{id}; }

TEST(PendingPrefixesTest, HoldsThoseThatLackWhatAnotherComputesUntilTheLastCommonChunk) {
  PendingPrefixes pending;
  const PrefixKeys producer = {1, 2, 3, 4};
  const PrefixKeys same_until_3 = {1, 2, 3, 9};
  const PrefixKeys different = {7, 8};
  EXPECT_FALSE(pending.Wait(Id(2), same_until_3, 0));
  EXPECT_FALSE(pending.Wait(Id(3), different, 0));
  std::vector<SequenceId> held;
  pending.Start(Id(1), producer, 0, &held);
  EXPECT_THAT(held, ElementsAre(Id(2)));
  EXPECT_EQ(pending.ProducerOf(Id(2)), Id(1));
  EXPECT_FALSE(pending.held(Id(3)));
  EXPECT_TRUE(pending.Wait(Id(4), producer, 1));
  EXPECT_EQ(pending.held_count(), 2u);

  std::vector<PendingPrefixes::Released> released;
  pending.Published(Id(1), 2, &released);
  EXPECT_THAT(released, IsEmpty());
  pending.Published(Id(1), 3, &released);
  EXPECT_THAT(released, ElementsAre(Released{Id(2), 3}));
  EXPECT_FALSE(pending.Wait(Id(2), same_until_3, 3));
  pending.Published(Id(1), 4, &released);
  EXPECT_THAT(released, ElementsAre(Released{Id(2), 3}, Released{Id(4), 4}));
  pending.Forget(Id(2));
  pending.Forget(Id(3));
  EXPECT_TRUE(pending.empty());
}

TEST(PendingPrefixesTest, AProducerThatStopsReleasesAllAndTheNextTakesOver) {
  PendingPrefixes pending;
  const PrefixKeys keys = {1, 2, 3};
  std::vector<SequenceId> held;
  pending.Start(Id(1), keys, 0, &held);
  for (uint64_t id = 2; id < 5; ++id) EXPECT_TRUE(pending.Wait(Id(id), keys, 0));
  std::vector<PendingPrefixes::Released> released;
  pending.Published(Id(1), 1, &released);
  EXPECT_THAT(released, IsEmpty());
  pending.Stop(Id(1), &released);
  EXPECT_THAT(released,
              UnorderedElementsAre(Released{Id(2), 1}, Released{Id(3), 1}, Released{Id(4), 1}));
  for (uint64_t id = 2; id < 5; ++id) EXPECT_FALSE(pending.Wait(Id(id), keys, 1));
  pending.Start(Id(3), keys, 1, &held);
  EXPECT_THAT(held, UnorderedElementsAre(Id(2), Id(4)));
  EXPECT_EQ(pending.ProducerOf(Id(4)), Id(3));
}

// One that runs beside the producer of the same chunks computes them, too, and takes over.
TEST(PendingPrefixesTest, AnotherThatRunsTakesOverWhenItIsAskedAgain) {
  PendingPrefixes pending;
  const PrefixKeys keys = {1, 2, 3};
  std::vector<SequenceId> held;
  EXPECT_TRUE(pending.Start(Id(1), keys, 0, &held));
  EXPECT_FALSE(pending.Start(Id(2), keys, 0, &held));
  EXPECT_TRUE(pending.Wait(Id(3), keys, 0));
  EXPECT_EQ(pending.ProducerOf(Id(3)), Id(1));
  std::vector<PendingPrefixes::Released> released;
  pending.Stop(Id(1), &released);
  EXPECT_THAT(released, ElementsAre(Released{Id(3), 0}));
  EXPECT_FALSE(pending.Wait(Id(3), keys, 0));
  EXPECT_TRUE(pending.Start(Id(2), keys, 1, &held));
  EXPECT_THAT(held, IsEmpty());  // it lacks the first chunk, which nobody computes
  pending.Forget(Id(3));
  EXPECT_TRUE(pending.Wait(Id(3), keys, 1));
  EXPECT_EQ(pending.ProducerOf(Id(3)), Id(2));
  EXPECT_TRUE(pending.Start(Id(2), keys, 2, &held));
}

TEST(PendingPrefixesTest, WhoLacksNoWholeChunkIsNeverHeld) {
  PendingPrefixes pending;
  const PrefixKeys keys = {1};
  std::vector<SequenceId> held;
  pending.Start(Id(1), keys, 0, &held);
  EXPECT_FALSE(pending.Wait(Id(2), keys, 1));
  EXPECT_FALSE(pending.Wait(Id(3), {}, 0));
}

// What PendingPrefixes promises, found by looking through everything each time.
class NaivePrefixes {
 public:
  bool Wait(SequenceId id, const PrefixKeys& keys, size_t present) {
    Waiting& waiting = waiting_[id] = {.keys = keys, .present = present};
    return Hold(&waiting);
  }
  void Forget(SequenceId id) { waiting_.erase(id); }

  bool Start(SequenceId id, const PrefixKeys& keys, size_t present, std::vector<SequenceId>* held) {
    waiting_.erase(id);
    running_[id] = {.keys = keys, .published = present};
    bool all = true;
    for (size_t i = present; i < keys.size(); ++i) {
      all &= owner_.try_emplace(keys[i], id).first->second == id;
    }
    for (auto& [other, waiting] : waiting_) {
      if (!waiting.producer.has_value() && Hold(&waiting)) held->push_back(other);
    }
    return all;
  }
  void Published(SequenceId id, size_t chunks, std::vector<Released>* released) {
    Running& one = running_.at(id);
    for (; one.published < chunks; ++one.published) {
      Release(id, one.keys[one.published], one.published + 1, released);
    }
  }
  void Stop(SequenceId id, std::vector<Released>* released) {
    const Running one = running_.at(id);
    running_.erase(id);
    for (size_t i = one.published; i < one.keys.size(); ++i) {
      Release(id, one.keys[i], one.published, released);
    }
  }

  std::optional<SequenceId> ProducerOf(SequenceId id) const {
    const auto found = waiting_.find(id);
    return found == waiting_.end() ? std::nullopt : found->second.producer;
  }
  size_t held_count() const {
    return static_cast<size_t>(std::count_if(waiting_.begin(), waiting_.end(), [](const auto& one) {
      return one.second.producer.has_value();
    }));
  }

 private:
  struct Waiting {
    PrefixKeys keys;
    size_t present = 0;
    std::optional<SequenceId> producer;
    uint64_t until = 0;  // key of the last chunk that the producer computes for it
  };
  struct Running {
    PrefixKeys keys;
    size_t published = 0;
  };

  bool Hold(Waiting* waiting) const {
    const PrefixKeys& keys = waiting->keys;
    for (size_t i = waiting->present; i < keys.size(); ++i) {
      const auto owner = owner_.find(keys[i]);
      if (owner == owner_.end() || owner->second != waiting->producer.value_or(owner->second))
        break;
      waiting->producer = owner->second;
      waiting->until = keys[i];
    }
    return waiting->producer.has_value();
  }

  void Release(SequenceId id, uint64_t key, size_t published, std::vector<Released>* released) {
    const auto owner = owner_.find(key);
    if (owner == owner_.end() || owner->second != id) return;
    owner_.erase(owner);
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      const Waiting& waiting = one->second;
      if (waiting.producer != id || waiting.until != key) {
        ++one;
        continue;
      }
      const size_t most = std::min(published, waiting.keys.size());
      released->push_back({one->first, std::max(waiting.present, most)});
      one = waiting_.erase(one);
    }
  }

  std::map<SequenceId, Waiting> waiting_;
  std::map<SequenceId, Running> running_;
  std::map<uint64_t, SequenceId> owner_;  // of a pending chunk's key
};

// Each event happens to both, who have to tell the same of it and to stand alike behind it.
class BothPrefixes {
 public:
  void Wait(SequenceId id, const PrefixKeys& keys, size_t present) {
    ASSERT_EQ(pending_.Wait(id, keys, present), naive_.Wait(id, keys, present)) << Number(id);
  }
  void Forget(SequenceId id) {
    pending_.Forget(id);
    naive_.Forget(id);
  }
  void Start(SequenceId id, const PrefixKeys& keys, size_t present) {
    std::vector<SequenceId> held, naive_held;
    ASSERT_EQ(pending_.Start(id, keys, present, &held),
              naive_.Start(id, keys, present, &naive_held))
        << Number(id);
    ASSERT_THAT(held, UnorderedElementsAreArray(naive_held)) << Number(id);
  }
  // What was released.
  std::vector<Released> Published(SequenceId id, size_t chunks) {
    std::vector<Released> released, naive_released;
    pending_.Published(id, chunks, &released);
    naive_.Published(id, chunks, &naive_released);
    EXPECT_THAT(released, UnorderedElementsAreArray(naive_released)) << Number(id);
    return released;
  }
  std::vector<Released> Stop(SequenceId id) {
    std::vector<Released> released, naive_released;
    pending_.Stop(id, &released);
    naive_.Stop(id, &naive_released);
    EXPECT_THAT(released, UnorderedElementsAreArray(naive_released)) << Number(id);
    return released;
  }
  void Compare(const std::map<SequenceId, PrefixKeys>& waiting) const {
    ASSERT_EQ(pending_.held_count(), naive_.held_count());
    for (const auto& [id, keys] : waiting) {
      ASSERT_EQ(pending_.ProducerOf(id), naive_.ProducerOf(id)) << Number(id);
      ASSERT_EQ(pending_.held(id), naive_.ProducerOf(id).has_value()) << Number(id);
    }
  }
  const PendingPrefixes& pending() const { return pending_; }

 private:
  static uint64_t Number(SequenceId id) { return static_cast<uint64_t>(id); }

  PendingPrefixes pending_;
  NaivePrefixes naive_;
};

// An answer goes on behind the prompt.
TEST(PendingPrefixesTest, WhoHasPublishedMoreThanItsPromptComputesNothingOfIt) {
  PendingPrefixes pending;
  const PrefixKeys keys = {1, 2};
  std::vector<SequenceId> held;
  EXPECT_TRUE(pending.Start(Id(1), keys, 0, &held));
  std::vector<Released> released;
  pending.Published(Id(1), 5, &released);
  EXPECT_TRUE(pending.empty());
}

// Against a model that knows everything: who is held, by whom, and until when.
TEST(PendingPrefixesTest, AgreesWithANaiveModelOnRandomEvents) {
  std::mt19937 random(5);
  const auto below = [&](size_t n) { return random() % n; };
  BothPrefixes both;
  struct Running {
    PrefixKeys keys;
    size_t published;
  };
  std::map<SequenceId, PrefixKeys> waiting;
  std::map<SequenceId, Running> running;
  std::set<uint64_t> computed;  // keys
  uint64_t next_id = 1;
  const auto present = [&](const PrefixKeys& keys) {
    size_t n = 0;
    while (n < keys.size() && computed.contains(keys[n])) ++n;
    return n;
  };
  const auto look_again = [&](const std::vector<Released>& released) {
    for (const Released& one : released) {
      const PrefixKeys& keys = waiting.at(one.sequence);
      both.Wait(one.sequence, keys, present(keys));
    }
  };
  int held_seen = 0;
  for (int step = 0; step < 20000 && !HasFailure(); ++step) {
    std::vector<Released> released;
    const size_t action = below(10);
    if (action < 4 && waiting.size() < 12) {
      PrefixKeys keys;
      uint64_t name = 1 + below(2);
      for (size_t n = below(6); n > 0; --n) keys.push_back(name = name * 4 + below(2));
      const SequenceId id = Id(next_id++);
      waiting[id] = keys;
      both.Wait(id, waiting[id], present(keys));
    } else if (action < 6 && !waiting.empty()) {
      const auto one = std::next(waiting.begin(), static_cast<ptrdiff_t>(below(waiting.size())));
      if (below(4) == 0) {
        both.Forget(one->first);
        waiting.erase(one);
      } else if (!both.pending().held(one->first)) {
        running[one->first] = {one->second, present(one->second)};
        both.Start(one->first, running[one->first].keys, running[one->first].published);
        waiting.erase(one);
      }
    } else if (!running.empty()) {
      const auto one = std::next(running.begin(), static_cast<ptrdiff_t>(below(running.size())));
      Running& state = one->second;
      if (below(4) == 0) {
        both.Start(one->first, state.keys, state.published);
      } else if (below(5) == 0 || state.published == state.keys.size()) {
        released = both.Stop(one->first);
        running.erase(one);
      } else {
        const size_t until = state.published + 1 + below(state.keys.size() - state.published);
        for (; state.published < until; ++state.published) {
          computed.insert(state.keys[state.published]);
        }
        released = both.Published(one->first, until);
        if (below(10) == 0) computed.clear();  // everything is evicted
      }
    }
    look_again(released);
    ASSERT_NO_FATAL_FAILURE(both.Compare(waiting)) << "step " << step;
    held_seen += both.pending().held_count() > 0 ? 1 : 0;
  }
  ASSERT_FALSE(HasFailure());
  EXPECT_GT(held_seen, 2000);
  while (!running.empty()) {
    const std::vector<Released> released = both.Stop(running.begin()->first);
    running.erase(running.begin());
    look_again(released);
  }
  EXPECT_EQ(both.pending().held_count(), 0u);
  for (const auto& [id, keys] : waiting) both.Forget(id);
  EXPECT_TRUE(both.pending().empty());
}

}  // namespace
}  // namespace refrain::engine
