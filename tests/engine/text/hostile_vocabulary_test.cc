// Vocabularies and patterns made to take time or memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "engine/text/pair_merger.h"
#include "tests/engine/text/text_test_data.h"
#include "tests/support/cpu_time.h"

namespace refrain::engine {
namespace {

using refrain::testing::ThreadCpuTime;

// In processor time of this thread, the best of three.
double Seconds(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto begin = ThreadCpuTime();
    work();
    const std::chrono::duration<double> taken = ThreadCpuTime() - begin;
    best = std::min(best, taken.count());
  }
  return best;
}

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

// 256 ids for the left and 256 for the right, all pairs of which come to stand in a row of a table
// of 2^18 slots by the hash of Fibonacci (Knuth, volume 3, 6.4) with its halves folded.
Pairs PairsThatCollide() {
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;
  constexpr uint32_t kMask = (1u << 18) - 1;
  constexpr uint32_t kRow = 1024;
  std::vector<int32_t> left, right;
  for (uint32_t id = 0; left.size() < 256 && id < kMask; ++id) {
    if ((id * static_cast<uint32_t>(kGoldenRatio) & kMask) < kRow) left.push_back(id);
  }
  for (uint32_t id = 0; right.size() < 256 && id < kMask; ++id) {
    const uint64_t product = id * kGoldenRatio;
    if (((product ^ product >> 32) & kMask & ~(kRow - 1)) == 0) right.push_back(id);
  }
  Pairs pairs;
  for (const int32_t l : left) {
    for (const int32_t r : right) pairs.emplace_back(l, r);
  }
  return pairs;
}

TEST(HostileVocabularyTest, ChosenIdsMakeNoSlowTableOfMerges) {
  const Pairs chosen = PairsThatCollide();
  ASSERT_EQ(chosen.size(), 65'536u);
  Pairs any;
  std::mt19937 random(10);
  while (any.size() < chosen.size()) any.emplace_back(random() % 300'000, random() % 300'000);
  const auto seconds = [](const Pairs& pairs) {
    return Seconds([&] {
      PairMerger merger(pairs.size());
      for (const auto& [left, right] : pairs) merger.Add(left, right, 0, 0);
    });
  };
  EXPECT_LT(seconds(chosen), 20 * seconds(any));  // it was 500 times as long
}

// By libstdc++'s hash, which has no seed, all of the vocabulary stands in a row of its table.
TEST(HostileVocabularyTest, ChosenTokensMakeNoSlowTableOfTexts) {
  constexpr size_t kTokens = 16'000, kMask = (1 << 15) - 1;
  const auto vocabulary = [&](bool chosen) {
    TokenizerSpec spec;
    spec.kind = TokenizerKind::kSentencePiece;
    for (uint32_t i = 0; spec.tokens.size() < kTokens; ++i) {
      std::string token = std::to_string(1'000'000'000 + i);
      if (chosen && (std::hash<std::string_view>()(token) & kMask) >= 256) continue;
      spec.tokens.push_back(std::move(token));
    }
    spec.scores.assign(kTokens, 0);
    return spec;
  };
  const TokenizerSpec chosen = vocabulary(true), any = vocabulary(false);
  const auto seconds = [](const TokenizerSpec& spec) {
    return Seconds([&] { EXPECT_TRUE(CreateTokenizer(spec).ok()); });
  };
  EXPECT_LT(seconds(chosen), 10 * seconds(any));
}

// Tokens are found byte by byte, by nodes of 20 bytes.
TEST(HostileVocabularyTest, RefusesSpecialTokensThatAreLongTogether) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  spec.tokens = {"a"};
  while (spec.tokens.size() < 31'252) {
    std::string token = std::to_string(spec.tokens.size());
    spec.tokens.push_back(token.append(512 - token.size(), 'c'));
  }
  spec.scores.assign(spec.tokens.size(), 0);
  for (const TokenType type : {TokenType::kControl, TokenType::kUserDefined}) {
    spec.token_types.assign(spec.tokens.size(), type);
    EXPECT_EQ(CreateTokenizer(spec).status(),
              absl::InvalidArgumentError("the special tokens have 16000513 bytes; together they "
                                         "have at most 16000000"));
  }
  spec.tokens.resize(1'000);
  spec.scores.resize(1'000);
  spec.token_types.resize(1'000);
  EXPECT_EQ(CreateTokenizer(spec).status(), absl::OkStatus());
}

absl::Status StatusOfPattern(const std::string& pattern) {
  TokenizerSpec spec;
  spec.tokens = {"a"};
  spec.pre_tokenizer = "custom";
  spec.split_patterns = {pattern};
  return CreateTokenizer(spec).status();
}

// With the square of the length it would be 64 times as long.
TEST(HostileVocabularyTest, ReadsClassesOfPatternsInLinearTime) {
  const auto seconds = [](int bytes) {
    const std::string pattern = "[" + Repeat("[:a]", bytes) + "]";
    return Seconds([&] { EXPECT_EQ(StatusOfPattern(pattern), absl::OkStatus()); });
  };
  EXPECT_LT(seconds(1 << 15), 32 * seconds(1 << 12));
}

TEST(HostileVocabularyTest, RefusesPatternsThatAreTooLong) {
  EXPECT_EQ(StatusOfPattern(std::string(20'000, 'a')), absl::OkStatus());
  EXPECT_EQ(StatusOfPattern(std::string((64 << 10) + 1, 'a')),
            absl::InvalidArgumentError(
                "the pre-tokenizer has a pattern of 65537 bytes; at most 65536 are supported"));
}

// By its beginning, which may not end inside of a character.
TEST(HostileVocabularyTest, MessagesShowLongPatternsShortened) {
  const std::string shown(95, 'a');
  EXPECT_EQ(StatusOfPattern(shown + "\u00e9[").message(),
            "pre-tokenizer pattern '" + shown +
                "...' at byte 98: a class without an end is not supported");
  EXPECT_EQ(StatusOfPattern(shown + "\u00e9)").message(),
            "pre-tokenizer pattern '" + shown + "...' at byte 97: unmatched closing parenthesis");
  EXPECT_EQ(StatusOfPattern("a)").message(),
            "pre-tokenizer pattern 'a)' at byte 1: unmatched closing parenthesis");
}

}  // namespace
}  // namespace refrain::engine
