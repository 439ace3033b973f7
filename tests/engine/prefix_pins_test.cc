#include "engine/prefix_pins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>

#include "tests/kvcache/cache_harness.h"
#include "tests/support/evict_all.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::CellsOf;
using ::refrain::testing::LetterHarness;
using ::refrain::testing::SpanOf;

absl::StatusOr<PinnedPrefix> Pin(PrefixPins* pins, const std::string& text, LetterHarness* h) {
  return pins->Pin({}, SpanOf(CellsOf(text)).ids, h->cache.get());
}

void Cache(const std::string& text, LetterHarness* h) {
  h->Run(1, text);
  h->Leave(1);
}

// Prompts of a few chunks that begin alike, in all orders of pinning and unpinning.
TEST(PrefixPinsTest, CountsAChunkOnceHoweverManyPinsKeepIt) {
  LetterHarness h(100);
  PrefixPins pins(/*spare_tokens=*/4);
  std::mt19937 random(4);
  std::map<PinId, std::string> pinned;
  size_t most_pins = 0, most_chunks = 0;
  for (int step = 0; step < 3000; ++step) {
    if (pinned.empty() || random() % 20 >= pinned.size()) {
      std::string text;
      for (unsigned chunks = 1 + random() % 4; chunks > 0; --chunks) {
        text += random() % 2 == 0 ? "aaaa" : "bbbb";
      }
      Cache(text + std::string(random() % 4, 'c'), &h);
      const auto pin = Pin(&pins, text + "cdefg", &h);
      ASSERT_TRUE(pin.ok()) << pin.status();
      ASSERT_EQ(pin->pinned_tokens, static_cast<int32_t>(text.size()));
      ASSERT_TRUE(pinned.empty() || pin->id > pinned.rbegin()->first) << "used before";
      pinned[pin->id] = text;
    } else {
      const auto one = std::next(pinned.begin(), random() % pinned.size());
      ASSERT_EQ(pins.Unpin(one->first, h.cache.get()), absl::OkStatus());
      ASSERT_TRUE(absl::IsNotFound(pins.Unpin(one->first, h.cache.get())));
      pinned.erase(one);
    }
    std::set<std::string> kept;
    for (const auto& [id, text] : pinned) {
      for (size_t end = 4; end <= text.size(); end += 4) kept.insert(text.substr(0, end));
    }
    ASSERT_EQ(pins.List().pinned_chunks, static_cast<int32_t>(kept.size())) << "step " << step;
    ASSERT_EQ(pins.List().pins.size(), pinned.size());
    if (step % 10 == 0) {
      testing::EvictAll(h.cache.get());
      for (const std::string& text : kept) {
        ASSERT_EQ(h.Match(CellsOf(text)).num_tokens, static_cast<int32_t>(text.size()));
      }
      ASSERT_EQ(h.cache->stats().used_chunks, static_cast<int32_t>(kept.size()));
    }
    most_pins = std::max(most_pins, pinned.size());
    most_chunks = std::max(most_chunks, kept.size());
  }
  EXPECT_GT(most_pins, 12u);
  EXPECT_GT(most_chunks, 15u);
}

TEST(PrefixPinsTest, RefusesOneMoreThanThereMayBe) {
  LetterHarness h;
  Cache("abcd", &h);
  PrefixPins pins(/*spare_tokens=*/4);
  PinId last{};
  for (size_t i = 0; i < PrefixPins::kMaxPins; ++i) {
    const auto pin = Pin(&pins, "abcd", &h);
    ASSERT_TRUE(pin.ok()) << pin.status();
    last = pin->id;
  }
  EXPECT_EQ(Pin(&pins, "abcd", &h).status(),
            absl::FailedPreconditionError("there are 4096 pins, as many as there may be"));
  EXPECT_EQ(pins.Unpin(last, h.cache.get()), absl::OkStatus());
  EXPECT_GT(Pin(&pins, "abcd", &h)->id, last);
}

// Of eight chunks two are to stay free: a sixth is pinned, a seventh is not, and changes nothing.
TEST(PrefixPinsTest, LeavesRoomToTheChunk) {
  LetterHarness h(8);
  PrefixPins pins(/*spare_tokens=*/8);
  for (const char* text : {"aaaabbbbcccc", "ddddeeeeffff", "gggg"}) Cache(text, &h);
  ASSERT_TRUE(Pin(&pins, "aaaabbbbcccc", &h).ok());
  ASSERT_TRUE(Pin(&pins, "ddddeeeeffff", &h).ok());
  const absl::Status refused = Pin(&pins, "gggg", &h).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(pins.List().pinned_chunks, 6);
  EXPECT_EQ(pins.List().pins.size(), 2u);
  EXPECT_EQ(h.cache->stats().used_chunks, 6);
}

}  // namespace
}  // namespace refrain::engine
