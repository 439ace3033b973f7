#include "engine/turn_memory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/refused_memory.h"

namespace refrain::engine {
namespace {

std::vector<TokenId> Ids(const std::vector<int32_t>& ids) {
  std::vector<TokenId> out;
  for (const int32_t id : ids) out.push_back(TokenId{id});
  return out;
}

constexpr TurnMemory::Window kAll[] = {{0, SIZE_MAX}};

TurnKey Key(const std::string& text, const std::string& tenant = "", const std::string& salt = "") {
  return {.scope = TurnScope(tenant, salt),
          .tenant = tenant,
          .end = TextEndOf(text),
          .text = DigestOf(text),
          .ids = DigestOf(Ids({static_cast<int32_t>(text.size())}))};
}

std::vector<std::vector<TokenId>> Generated(const TurnMemory& memory, const TurnKey& key) {
  std::vector<std::vector<TokenId>> out;
  for (const auto& turn : memory.Find(key.scope, key.text)) out.push_back(*turn.generated);
  return out;
}

// Encode threads do this, where a request that finds no memory ends alone.
TEST(TurnMemoryTest, ATurnIsMarkedAsUsedWithoutMemory) {
  TurnMemory memory({.turns = 3});
  for (const char* text : {"first", "second"}) memory.Remember(Key(text, "a"), Ids({1}));
  memory.Remember(Key("third", "b"), Ids({1}));
  const TurnKey first = Key("first", "a");
  const TurnMemory::Turn turn = memory.Find(first.scope, first.text).at(0);
  EXPECT_EQ(testing::RefuseEachAllocation([&] { memory.MarkUsed(turn); }), 0);
  memory.Remember(Key("fourth", "b"), Ids({1}));
  EXPECT_EQ(memory.num_turns(), 3u);
  EXPECT_EQ(memory.Find(first.scope, first.text).size(), 1u);
}

TEST(TurnMemoryTest, KeepsAllTurnsOfAPromptOldestFirstAndEqualOnesOnce) {
  TurnMemory memory;
  const TurnKey key = Key("How are you?");
  memory.Remember(key, Ids({1, 2}));
  memory.Remember(key, Ids({3}));
  memory.Remember(key, Ids({1, 2}));
  memory.Remember(key, {});
  EXPECT_EQ(Generated(memory, key), (std::vector{Ids({1, 2}), Ids({3})}));
  EXPECT_EQ(memory.num_turns(), 2u);
  // The same text read as other ids is another prompt.
  TurnKey other = key;
  other.ids = DigestOf(Ids({9}));
  memory.Remember(other, Ids({1, 2}));
  EXPECT_EQ(memory.Find(key.scope, key.text).size(), 3u);
  EXPECT_EQ(memory.Find(key.scope, key.text).back().prompt_ids, other.ids);
}

TEST(TurnMemoryTest, KnowsWhichBeginningsOfATextMayBeItsPrompts) {
  TurnMemory memory({.turns = 4});
  const std::string text = "A prompt, and more.";
  for (const size_t size : {8, 1, 9, 13}) memory.Remember(Key(text.substr(0, size)), Ids({1}));
  const std::string& scope = Key("").scope;
  EXPECT_EQ(memory.PromptSizes(scope, text, kAll), (std::vector<size_t>{1, 8, 9, 13}));
  memory.Remember(Key(text), Ids({1}));
  EXPECT_EQ(memory.PromptSizes(scope, text, kAll), (std::vector<size_t>{1, 9, 13, text.size()}));
  EXPECT_EQ(memory.PromptSizes(scope, "A prompt, and", kAll), (std::vector<size_t>{1, 9, 13}));
  EXPECT_EQ(memory.PromptSizes(scope, "Another text of this size.", kAll), std::vector<size_t>{1});
  EXPECT_EQ(memory.PromptSizes("elsewhere", text, kAll), std::vector<size_t>{});
  EXPECT_EQ(memory.PromptSizes(scope, text, {}), std::vector<size_t>{});
}

TEST(TurnMemoryTest, LooksInWindowsOnly) {
  TurnMemory memory;
  const std::string text(100, 'x');
  for (const size_t size : {10, 20, 30, 40, 50})
    memory.Remember(Key(text.substr(0, size)), Ids({1}));
  const auto sizes = [&](const std::vector<TurnMemory::Window>& windows) {
    return memory.PromptSizes(Key("").scope, text, windows);
  };
  EXPECT_EQ(sizes({{20, 40}}), (std::vector<size_t>{20, 30, 40}));
  EXPECT_EQ(sizes({{0, 9}, {11, 19}, {51, 100}}), std::vector<size_t>{});
  EXPECT_EQ(sizes({{0, 10}, {50, 50}}), (std::vector<size_t>{10, 50}));
  EXPECT_EQ(sizes({{0, 25}, {15, 35}, {20, 20}, {34, 40}}), (std::vector<size_t>{10, 20, 30, 40}));
}

// Prompts of a busy server have all sizes, and end in the same generation prompt.
TEST(TurnMemoryTest, TellsPromptsOfASizeApartByTheirEnds) {
  TurnMemory memory;
  const std::string ask = "\n<|im_start|>assistant\n";
  for (int i = 0; i < 2000; ++i) {
    memory.Remember(Key(std::string(i, 'a' + i % 7) + " " + std::to_string(i) + ask), Ids({1}));
  }
  const std::string text = std::string(700, 'a') + " 700" + ask + "Yes." + std::string(3000, 'b');
  EXPECT_EQ(memory.PromptSizes(Key("").scope, text, kAll), std::vector<size_t>{704 + ask.size()});
}

// Tenants and salts are apart, also those whose names run together.
TEST(TurnMemoryTest, FindsNothingOfAnotherTenantOrSalt) {
  TurnMemory memory;
  memory.Remember(Key("text", "ab", "c"), Ids({1}));
  EXPECT_EQ(Generated(memory, Key("text", "ab", "c")).size(), 1u);
  for (const TurnKey& key : {Key("text"), Key("text", "a", "bc"), Key("text", "abc", ""),
                             Key("text", "", "abc"), Key("text", "ab", "d")}) {
    EXPECT_EQ(Generated(memory, key).size(), 0u) << key.scope;
    EXPECT_EQ(memory.PromptSizes(key.scope, "text", kAll).size(), 0u) << key.scope;
  }
}

TEST(TurnMemoryTest, ForgetsWhatWasNotUsedForLongest) {
  TurnMemory memory({.turns = 2});
  memory.Remember(Key("first"), Ids({1}));
  memory.Remember(Key("second"), Ids({2}));
  memory.MarkUsed(memory.Find(Key("first").scope, Key("first").text).front());
  memory.Remember(Key("third"), Ids({3}));
  EXPECT_EQ(Generated(memory, Key("first")).size(), 1u);
  EXPECT_EQ(Generated(memory, Key("second")).size(), 0u);
  // Said again is used, too.
  memory.Remember(Key("first"), Ids({1}));
  memory.Remember(Key("fourth"), Ids({4}));
  EXPECT_EQ(Generated(memory, Key("first")).size(), 1u);
  EXPECT_EQ(Generated(memory, Key("third")).size(), 0u);
}

// Salts are a client's to choose: the tenant counts.
TEST(TurnMemoryTest, ATenantThatFillsItForgetsItsOwn) {
  TurnMemory memory({.turns = 16});
  const std::vector<std::string> texts = {"first", "second", "third"};
  for (const std::string& text : texts) memory.Remember(Key(text, "b"), Ids({1}));
  for (int32_t i = 0; i < 1000; ++i) {
    memory.Remember(Key("flood " + std::to_string(i), "a", std::to_string(i)), Ids({1, 2}));
  }
  EXPECT_EQ(memory.num_turns(), 16u);
  for (const std::string& text : texts) EXPECT_EQ(Generated(memory, Key(text, "b")).size(), 1u);
  EXPECT_EQ(Generated(memory, Key("flood 987", "a", "987")).size(), 1u);
  EXPECT_EQ(Generated(memory, Key("flood 986", "a", "986")).size(), 0u);
  // Who needs more gets as much as the other one, and no more than that.
  for (int32_t i = 0; i < 100; ++i) memory.Remember(Key(std::to_string(i), "b"), Ids({1}));
  EXPECT_EQ(memory.PromptSizes(Key("", "b").scope, "98", kAll), std::vector<size_t>{2});
  for (const std::string& text : texts) EXPECT_EQ(Generated(memory, Key(text, "b")).size(), 0u);
  EXPECT_EQ(Generated(memory, Key("99", "b")).size(), 1u);
  EXPECT_EQ(Generated(memory, Key("flood 992", "a", "992")).size(), 1u);
  EXPECT_EQ(Generated(memory, Key("flood 991", "a", "991")).size(), 0u);
}

TEST(TurnMemoryTest, OfTenantsThatHaveAsMuchTheOldestTurnIsForgotten) {
  TurnMemory memory({.turns = 3});
  for (const char* tenant : {"b", "c", "a"}) memory.Remember(Key("text", tenant), Ids({1}));
  memory.MarkUsed(memory.Find(Key("text", "b").scope, Key("text", "b").text).front());
  memory.Remember(Key("text", "d"), Ids({1}));
  EXPECT_EQ(Generated(memory, Key("text", "c")).size(), 0u);
  memory.Remember(Key("text", "e"), Ids({1}));
  EXPECT_EQ(Generated(memory, Key("text", "a")).size(), 0u);
  EXPECT_EQ(Generated(memory, Key("text", "b")).size(), 1u);
}

// Whose other turns are younger than those of another.
TEST(TurnMemoryTest, OfTenantsThatHaveAsMuchTheOldestTurnIsForgottenWhatFollowedOrNot) {
  TurnMemory memory({.turns = 4});
  memory.Remember(Key("1", "b"), Ids({1}));
  memory.Remember(Key("2", "c"), Ids({1}));
  memory.Remember(Key("3", "c"), Ids({1}));
  memory.Remember(Key("4", "b"), Ids({1}));
  memory.Remember(Key("5", "d"), Ids({1}));
  EXPECT_EQ(Generated(memory, Key("1", "b")).size(), 0u);
  EXPECT_EQ(Generated(memory, Key("2", "c")).size(), 1u);
}

// Of turns and bytes a tenant takes what it takes more of: one has long answers, one many.
TEST(TurnMemoryTest, ManyShortTurnsDoNotCostAnotherItsLongOnes) {
  TurnMemory memory({.turns = 100, .bytes = 100'000});
  for (int32_t i = 0; i < 4; ++i) {
    memory.Remember(Key("long " + std::to_string(i), "b"), std::vector<TokenId>(2500, TokenId{i}));
  }
  for (int32_t i = 0; i < 1000; ++i) memory.Remember(Key(std::to_string(i), "a"), Ids({1}));
  EXPECT_EQ(memory.num_turns(), 100u);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(Generated(memory, Key("long " + std::to_string(i), "b")).size(), 1u);
  }
  // And the other way round.
  memory.Remember(Key("short", "c"), Ids({1}));
  for (int32_t i = 0; i < 100; ++i) {
    memory.Remember(Key("longer " + std::to_string(i), "b"), std::vector<TokenId>(5000));
  }
  EXPECT_EQ(Generated(memory, Key("short", "c")).size(), 1u);
  EXPECT_EQ(Generated(memory, Key("999", "a")).size(), 1u);
}

TEST(TurnMemoryTest, StaysWithinItsBytes) {
  constexpr size_t kBytes = 100'000;
  TurnMemory memory({.turns = 1'000'000, .bytes = kBytes});
  for (int32_t i = 0; i < 1000; ++i) {
    memory.Remember(Key("prompt " + std::to_string(i)),
                    std::vector<TokenId>(static_cast<size_t>(i), TokenId{i}));
    ASSERT_LE(memory.num_bytes(), kBytes);
  }
  EXPECT_GT(memory.num_turns(), 10u);
  EXPECT_EQ(Generated(memory, Key("prompt 999")).size(), 1u);
  memory.Remember(Key("giant"), std::vector<TokenId>(kBytes, TokenId{1}));
  EXPECT_EQ(Generated(memory, Key("giant")).size(), 0u);
  EXPECT_EQ(Generated(memory, Key("prompt 999")).size(), 1u);
}

// A load test asks the same thing a thousand times, at temperature 1.
TEST(TurnMemoryTest, KeepsTheYoungestTurnsOfOnePrompt) {
  TurnMemory memory({.turns_per_prompt = 3});
  memory.Remember(Key("other"), Ids({7}));
  for (int32_t i = 0; i < 1000; ++i) memory.Remember(Key("same"), Ids({i}));
  EXPECT_EQ(memory.num_turns(), 4u);
  const TurnKey key = Key("same");
  const auto turns = memory.Find(key.scope, key.text);
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns.front().generated->front(), TokenId{997});
  EXPECT_EQ(turns.back().generated->front(), TokenId{999});
}

// A conversation goes on while others begin with the same words.
TEST(TurnMemoryTest, KeepsTheTurnOfAPromptThatIsInUse) {
  TurnMemory memory({.turns_per_prompt = 3});
  const TurnKey key = Key("same");
  memory.Remember(key, Ids({0}));
  for (int32_t i = 1; i < 1000; ++i) {
    memory.Remember(key, Ids({i}));
    memory.MarkUsed(memory.Find(key.scope, key.text).front());
  }
  const auto turns = memory.Find(key.scope, key.text);
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns.front().generated->front(), TokenId{0});
  EXPECT_EQ(turns.back().generated->front(), TokenId{999});
}

TEST(TurnMemoryTest, ServesReadersWhileItForgets) {
  TurnMemory memory({.turns = 8});
  std::thread writer([&memory] {
    for (int32_t i = 0; i < 5000; ++i) {
      memory.Remember(Key("prompt " + std::to_string(i % 20)), Ids({i % 20, i % 3}));
    }
  });
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&memory] {
      for (int32_t i = 0; i < 5000; ++i) {
        const TurnKey key = Key("prompt " + std::to_string(i % 20));
        for (const auto& turn : memory.Find(key.scope, key.text)) {
          EXPECT_EQ(turn.generated->front(), TokenId{i % 20});
          memory.MarkUsed(turn);
        }
        memory.PromptSizes(key.scope, "prompt 10", kAll);
      }
    });
  }
  writer.join();
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(memory.num_turns(), 8u);
}

}  // namespace
}  // namespace refrain::engine
