#include "engine/pending_prefixes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "engine/prefix_keys.h"

namespace refrain::engine {
namespace {

using Released = PendingPrefixes::Released;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

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

// Against a model that knows everything: who is held, by whom, and until when.
TEST(PendingPrefixesTest, AgreesWithANaiveModelOnRandomEvents) {
  std::mt19937 random(5);
  const auto below = [&](size_t n) { return random() % n; };
  PendingPrefixes pending;
  struct Running {
    PrefixKeys keys;
    size_t published;
  };
  std::map<uint64_t, PrefixKeys> waiting;
  std::map<uint64_t, Running> running;
  std::set<uint64_t> computed;  // keys
  std::map<uint64_t, uint64_t> owner;
  uint64_t next_id = 1;
  const auto present = [&](const PrefixKeys& keys) {
    size_t n = 0;
    while (n < keys.size() && computed.contains(keys[n])) ++n;
    return n;
  };
  const auto look_again = [&](const std::vector<PendingPrefixes::Released>& released) {
    for (const auto& [id, at_least] : released) {
      const PrefixKeys& keys = waiting.at(static_cast<uint64_t>(id));
      pending.Wait(id, keys, present(keys));
    }
  };
  std::vector<SequenceId> now_held;
  int held_seen = 0;
  for (int step = 0; step < 20000; ++step) {
    std::vector<PendingPrefixes::Released> released;
    const size_t action = below(10);
    if (action < 4 && waiting.size() < 12) {
      PrefixKeys keys;
      uint64_t name = 1 + below(2);
      for (size_t n = below(6); n > 0; --n) keys.push_back(name = name * 4 + below(2));
      const uint64_t id = next_id++;
      waiting[id] = keys;
      pending.Wait(Id(id), waiting[id], present(keys));
    } else if (action < 6 && !waiting.empty()) {
      auto one = std::next(waiting.begin(), static_cast<ptrdiff_t>(below(waiting.size())));
      if (below(4) == 0) {
        pending.Forget(Id(one->first));
        waiting.erase(one);
      } else if (!pending.held(Id(one->first))) {
        const uint64_t id = one->first;
        const size_t first = present(one->second);
        for (size_t i = first; i < one->second.size(); ++i) owner.try_emplace(one->second[i], id);
        running[id] = {one->second, first};
        pending.Start(Id(id), running[id].keys, first, &now_held);
        waiting.erase(one);
      }
    } else if (!running.empty()) {
      auto one = std::next(running.begin(), static_cast<ptrdiff_t>(below(running.size())));
      Running& state = one->second;
      if (below(4) == 0) {
        bool all = true;
        for (size_t i = state.published; i < state.keys.size(); ++i) {
          all &= owner.try_emplace(state.keys[i], one->first).first->second == one->first;
        }
        EXPECT_EQ(pending.Start(Id(one->first), state.keys, state.published, &now_held), all);
      } else if (below(5) == 0 || state.published == state.keys.size()) {
        for (size_t i = state.published; i < state.keys.size(); ++i) {
          if (const auto o = owner.find(state.keys[i]); o != owner.end() && o->second == one->first)
            owner.erase(o);
        }
        pending.Stop(Id(one->first), &released);
        running.erase(one);
      } else {
        const size_t until = state.published + 1 + below(state.keys.size() - state.published);
        for (; state.published < until; ++state.published) {
          computed.insert(state.keys[state.published]);
          const auto o = owner.find(state.keys[state.published]);
          if (o != owner.end() && o->second == one->first) owner.erase(o);
        }
        pending.Published(Id(one->first), until, &released);
        if (below(10) == 0) computed.clear();  // everything is evicted
      }
    }
    look_again(released);
    size_t held = 0;
    for (const auto& [id, keys] : waiting) {
      const std::optional<SequenceId> producer = pending.ProducerOf(Id(id));
      held += producer.has_value() ? 1 : 0;
      if (producer.has_value()) {
        ASSERT_TRUE(running.contains(static_cast<uint64_t>(*producer)));
      }
    }
    ASSERT_EQ(held, pending.held_count());
    held_seen += held > 0 ? 1 : 0;
  }
  EXPECT_GT(held_seen, 2000);
  std::vector<PendingPrefixes::Released> released;
  while (!running.empty()) {
    released.clear();
    pending.Stop(Id(running.begin()->first), &released);
    running.erase(running.begin());
    look_again(released);
  }
  EXPECT_EQ(pending.held_count(), 0u);
  for (const auto& [id, keys] : waiting) pending.Forget(Id(id));
  EXPECT_TRUE(pending.empty());
}

}  // namespace
}  // namespace refrain::engine
