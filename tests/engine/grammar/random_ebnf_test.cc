#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/places.h"
#include "engine/text/utf8.h"
#include "tests/engine/grammar/ebnf_grammar.h"
#include "tests/engine/grammar/random_ebnf.h"
#include "tests/support/cpu_time.h"
#include "tests/support/random_steps.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {
namespace {

using refrain::testing::MakeEbnfGrammar;
using refrain::testing::RandomEbnf;
using refrain::testing::RandomSeed;
using refrain::testing::RandomSteps;

// All texts of up to four bytes of a small alphabet, and some longer ones.
std::vector<std::string> Texts(std::mt19937* random) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 4; ++i) {
    const std::string text = texts[i];
    for (const char* c : {"a", "b"}) texts.push_back(text + c);
  }
  for (int i = 0; i < 20; ++i) {
    std::string text;
    for (unsigned j = (*random)() % 7; j > 0; --j) {
      constexpr const char* kCharacters[] = {"a", "b", "\xC3\xA9", "\n", "c"};
      text += kCharacters[(*random)() % 5];
    }
    texts.push_back(text);
  }
  return texts;
}

// None where the text may stand in too many places at once: these grammars are as ambiguous as it
// comes, and a naive acceptor would have a place for each way.
std::optional<bool> Accepts(const Grammar& grammar, const std::string& text) {
  FrameArena frames;
  PlaceMover mover;
  PlaceSet at;
  at.places.push_back({grammar.start(grammar.root()), kNobody});
  mover.Close(grammar, &frames, &at);
  for (const char c : text) {
    PlaceSet behind;
    mover.Step(grammar, &frames, at.places, static_cast<uint8_t>(c), &behind);
    if (at.overrun) return std::nullopt;
    at = std::move(behind);
  }
  if (at.overrun) return std::nullopt;
  return at.ended;
}

bool Mentions(const absl::Status& status, std::string_view text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST(RandomEbnfTest, HaveTheTextsThatTryingAllOfThemFinds) {
  std::mt19937 random(RandomSeed(41));
  const int num_grammars = std::min(RandomSteps() / 10, 20000);
  int num_taken = 0, num_refused = 0, num_plain = 0, num_hidden = 0, num_empty = 0;
  int num_large = 0;
  for (int i = 0; i < num_grammars; ++i) {
    RandomEbnf oracle(&random);
    const std::string written = oracle.Written();
    const absl::StatusOr<Grammar> grammar = MakeEbnfGrammar(written);
    const std::vector<std::string> texts = Texts(&random);
    if (!grammar.ok()) {
      if (Mentions(grammar.status(), "can never be satisfied")) {
        ++num_empty;
        for (const std::string& text : texts) ASSERT_FALSE(oracle.Takes(text)) << written;
        continue;
      }
      // Counts behind what they may be a part of take a state for each way to count.
      if (Mentions(grammar.status(), "takes more than")) {
        ++num_large;
        continue;
      }
      ASSERT_TRUE(Mentions(grammar.status(), "recurses without end: the rule '"))
          << written << grammar.status();
      ASSERT_TRUE(oracle.HasHiddenLeftRecursion()) << written << grammar.status();
      ++num_hidden;
      continue;
    }
    num_plain += oracle.HasPlainLeftRecursion() ? 1 : 0;
    for (const std::string& text : texts) {
      const std::optional<bool> accepted = Accepts(*grammar, text);
      if (!accepted.has_value()) continue;
      const bool takes = oracle.Takes(text);
      (takes ? num_taken : num_refused) += 1;
      ASSERT_EQ(*accepted, takes) << written << "\n[" << text << "]";
    }
  }
  EXPECT_GT(num_taken, num_grammars * 2);
  EXPECT_GT(num_refused, num_grammars * 2);
  EXPECT_GT(num_plain, num_grammars / 20);
  EXPECT_GT(num_hidden, num_grammars / 50);
  EXPECT_GT(num_empty, 0);
  EXPECT_LE(num_large, num_grammars / 50);
}

// A grammar with a few changes: bytes, parts put in again elsewhere, parts that are gone.
std::string Changed(std::string text, std::mt19937* random) {
  constexpr std::string_view kBytes = "()[]{}|*+?.\\-^:=<>!#\",01rxu \n\r\t'\xC3\xA9\xFF";
  for (unsigned i = 1 + (*random)() % 4; i > 0; --i) {
    const size_t at = (*random)() % (text.size() + 1);
    const std::string part = text.substr(at, (*random)() % 12);
    switch ((*random)() % 4) {
      case 0:
        text.insert(at, 1, kBytes[(*random)() % kBytes.size()]);
        break;
      case 1:
        text.insert((*random)() % (text.size() + 1), part);
        break;
      case 2:
        text.erase(at, part.size());
        break;
      default:
        if (at < text.size()) text[at] = kBytes[(*random)() % kBytes.size()];
    }
  }
  return text;
}

TEST(RandomEbnfTest, ChangedOnesAreUnderstoodOrRefusedSoon) {
  std::mt19937 random(RandomSeed(42));
  int num_understood = 0;
  std::string text;
  for (int i = 0; i < RandomSteps(); ++i) {
    text = i % 6 == 0 ? RandomEbnf(&random).Written() : Changed(text, &random);
    const auto begin = refrain::testing::ThreadCpuTime();
    const absl::StatusOr<Grammar> grammar = MakeEbnfGrammar(text);
    const auto time = refrain::testing::ThreadCpuTime() - begin;
    ASSERT_LT(time, std::chrono::milliseconds(1500) * refrain::testing::kSlowBuildFactor) << text;
    if (grammar.ok()) {
      ++num_understood;
      continue;
    }
    ASSERT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << text;
    const std::string message(grammar.status().message());
    ASSERT_TRUE(message.starts_with("line ") || message.starts_with("grammar ")) << message;
    ASSERT_LT(message.size(), 300u);
    ASSERT_TRUE(IsValidUtf8(message)) << message;
  }
  EXPECT_GT(num_understood, RandomSteps() / 10);
}

}  // namespace
}  // namespace refrain::engine
