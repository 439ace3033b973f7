#include "engine/turn_speller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "engine/text/detokenizer.h"
#include "engine/turn_splicer.h"
#include "tests/engine/text/text_test_data.h"
#include "tests/support/random_steps.h"

namespace refrain::engine {
namespace {

using Extent = TurnSpeller::Extent;

// Another tokenizer, of which it counts how many tokens are spelled; and one token has no text.
class WatchedTokenizer final : public Tokenizer {
 public:
  explicit WatchedTokenizer(std::unique_ptr<Tokenizer> real, TokenId silent = TokenId{-1})
      : real_(std::move(real)), silent_(silent) {}

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view utf8,
                                              const EncodeOptions& options) const override {
    return real_->Encode(utf8, options);
  }
  std::vector<ControlToken> FindControlTokens(std::string_view utf8,
                                              const EncodeOptions& options) const override {
    return real_->FindControlTokens(utf8, options);
  }
  std::string_view TokenBytes(TokenId id) const override {
    ++spelled_tokens_;
    return id == silent_ ? "" : real_->TokenBytes(id);
  }
  bool IsControl(TokenId id) const override { return real_->IsControl(id); }
  bool IsReserved(TokenId id) const override { return real_->IsReserved(id); }
  bool IsEndOfGeneration(TokenId id) const override { return real_->IsEndOfGeneration(id); }
  size_t vocab_size() const override { return real_->vocab_size(); }
  std::optional<TokenId> bos() const override { return real_->bos(); }
  std::optional<TokenId> eos() const override { return real_->eos(); }
  bool adds_bos() const override { return real_->adds_bos(); }
  bool adds_space_prefix() const override { return real_->adds_space_prefix(); }
  std::optional<TokenId> FindSpecial(std::string_view text) const override {
    return real_->FindSpecial(text);
  }

  size_t spelled_tokens() const { return spelled_tokens_; }

 private:
  std::unique_ptr<Tokenizer> real_;
  TokenId silent_;
  mutable size_t spelled_tokens_ = 0;
};

std::unique_ptr<Tokenizer> ByteLevel() { return *CreateTokenizer(SmolLm2Spec()); }
std::unique_ptr<Tokenizer> SentencePiece() {
  return *CreateTokenizer(
      SpecOfSentencePieceModel(ReadTestData("llama2-tokenizer/tokenizer.model")));
}

// What TurnSpeller is compared with: every beginning of every turn for itself, as if the answer
// ended there.
Extent SpellPlainly(const Tokenizer* tokenizer, std::span<const TokenId> ids,
                    std::string_view text) {
  Extent spelled;
  for (size_t tokens = 1; tokens <= ids.size(); ++tokens) {
    if (kvcache::ToIndex(ids[tokens - 1]) >= tokenizer->vocab_size()) break;
    if (tokenizer->IsReserved(ids[tokens - 1])) break;
    Detokenizer detokenizer(tokenizer);
    std::string whole;
    for (size_t i = 0; i < tokens; ++i) whole += detokenizer.Append(ids[i]);
    if (!text.starts_with(whole)) break;
    whole += detokenizer.Flush();
    if (text.starts_with(whole)) spelled = {tokens, whole.size()};
  }
  return spelled;
}

// The same of what is to be taken.
Extent SpellWholeWordsPlainly(const Tokenizer* tokenizer, std::span<const TokenId> ids,
                              std::string_view text) {
  const Extent spelled = SpellPlainly(tokenizer, ids, text);
  if (spelled.tokens == ids.size()) return spelled;
  const TokenId next = ids[spelled.tokens];
  if (kvcache::ToIndex(next) >= tokenizer->vocab_size()) return spelled;
  if (tokenizer->IsReserved(next)) return spelled;
  if (tokenizer->TokenBytes(next).starts_with(text.substr(spelled.bytes))) return spelled;
  for (size_t tokens = spelled.tokens; tokens > 0; --tokens) {
    Detokenizer detokenizer(tokenizer);
    std::string whole;
    for (size_t i = 0; i < tokens; ++i) whole += detokenizer.Append(ids[i]);
    const bool ends = !detokenizer.holds_bytes() && !whole.empty() && whole.back() != ' ';
    if (ends && text.substr(whole.size()).starts_with(' ')) return {tokens, whole.size()};
  }
  return {};
}

// The tokens that are exactly one of these: parts of characters, what has several spellings.
std::vector<TokenId> TokensOf(const Tokenizer& tokenizer) {
  static constexpr std::string_view kBytes[] = {
      "a",    "aa",   " a",   " ",    "  ",   "\xC3", "\xA9", "\xC3\xA9", "\xF0", "\x9F",
      "\xA6", "\x8A", "\xED", "\xA0", "\xE2", "\x80", "\x99", "\xEF",     "\xBF", "\xBD"};
  std::vector<TokenId> ids;
  for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const TokenId id{static_cast<int32_t>(i)};
    if (std::ranges::find(kBytes, tokenizer.TokenBytes(id)) != std::end(kBytes)) ids.push_back(id);
  }
  return ids;
}

// Turns that begin alike, and texts that they spell in part.
class RandomTurns {
 public:
  RandomTurns(const Tokenizer* tokenizer, TokenId silent, uint32_t seed)
      : tokenizer_(tokenizer), random_(seed), ids_(TokensOf(*tokenizer)) {
    EXPECT_GT(ids_.size(), 15u);
    plain_ids_ = ids_;
    plain_ids_.push_back(silent);
    ids_ = plain_ids_;
    ids_.push_back(*tokenizer->eos());
    ids_.push_back(TokenId{static_cast<int32_t>(tokenizer->vocab_size())});
  }

  std::vector<std::vector<TokenId>> Turns() {
    std::vector<std::vector<TokenId>> turns;
    for (size_t count = 1 + Below(12); turns.size() < count;) {
      std::vector<TokenId> turn;
      if (!turns.empty() && Below(16) != 0) turn = turns[Below(2) * Below(turns.size())];
      // Cut anywhere, or near the end.
      const size_t cut = Below(2) == 0 ? turn.size() : TurnSpeller::kStride;
      turn.resize(turn.size() - Below(std::min(turn.size(), cut) + 1));
      // Goes on for a few states, and often not at all.
      for (size_t more = Below(5) * Below(TurnSpeller::kStride + 2); more > 0; --more) {
        turn.push_back(Below(1000) == 0 ? ids_[Below(ids_.size())]
                                        : plain_ids_[Below(plain_ids_.size())]);
      }
      if (!turn.empty() && Below(16) == 0) turn[Below(turn.size())] = ids_[Below(ids_.size())];
      turns.push_back(std::move(turn));
    }
    return turns;
  }

  std::string TextOf(std::vector<TokenId> turn) {
    if (Below(4) == 0) turn.resize(Below(turn.size() + 1));
    Detokenizer detokenizer(tokenizer_);
    std::string text;
    for (const TokenId id : turn) text += detokenizer.Append(id);
    text += detokenizer.Flush();
    if (!text.empty() && Below(8) == 0) text.resize(Below(text.size()));
    if (!text.empty() && Below(8) == 0) text[Below(text.size())] = 'a';
    return text + (Below(2) == 0 ? "" : "a a\xC3\xA9\xEF\xBF\xBD");
  }

  size_t Below(size_t limit) { return random_() % limit; }

 private:
  const Tokenizer* tokenizer_;
  std::mt19937 random_;
  std::vector<TokenId> plain_ids_;
  std::vector<TokenId> ids_;  // those, and what spells nothing
};

// Turns in any order, whatever was kept of those before.
TEST(TurnSpellerTest, SpellsEachTurnAsFarAsIfItWereTheOnlyOne) {
  for (auto* const make : {&ByteLevel, &SentencePiece}) {
    const TokenId silent{1000};
    const WatchedTokenizer tokenizer(make(), silent);
    RandomTurns random(&tokenizer, silent, testing::RandomSeed(31));
    size_t ends_within_characters = 0, long_ones = 0, resumed = 0, whole_words = 0;
    for (int checked = 0; checked < testing::RandomSteps();) {
      const std::vector<std::vector<TokenId>> turns = random.Turns();
      const std::string text = random.TextOf(turns[random.Below(turns.size())]);
      TurnSpeller speller(&tokenizer, text);
      for (const std::vector<TokenId>& turn : turns) {
        const size_t before = tokenizer.spelled_tokens();
        const Extent spelled = speller.Spell(turn);
        const size_t taken = tokenizer.spelled_tokens() - before;
        ASSERT_EQ(spelled, SpellPlainly(&tokenizer, turn, text)) << checked;
        const Extent whole = speller.SpellWholeWords(turn);
        ASSERT_EQ(whole, SpellWholeWordsPlainly(&tokenizer, turn, text)) << checked;
        if (whole.tokens > 0 && whole != spelled) ++whole_words;
        ++checked;
        if (taken < spelled.tokens) ++resumed;
        if (spelled.tokens > 2 * TurnSpeller::kStride) ++long_ones;
        if (spelled.tokens > 0 && text.substr(0, spelled.bytes).ends_with("\uFFFD")) {
          ++ends_within_characters;
        }
      }
    }
    // Else it proves nothing.
    EXPECT_GT(resumed, static_cast<size_t>(testing::RandomSteps()) / 10);
    EXPECT_GT(whole_words, static_cast<size_t>(testing::RandomSteps()) / 100);
    EXPECT_GT(long_ones, static_cast<size_t>(testing::RandomSteps()) / 20);
    EXPECT_GT(ends_within_characters, static_cast<size_t>(testing::RandomSteps()) / 100);
  }
}

// A stop string cut the answer right behind parts of characters, which the client saw as U+FFFD
// each; its own token is no part of what it saw.
TEST(TurnSpellerTest, PartsOfCharactersAreSpelledUpToWhereTheTextGoesOnOtherwise) {
  const std::unique_ptr<Tokenizer> tokenizer = ByteLevel();
  const auto token_of = [&](std::string_view bytes) {
    TokenId id{0};
    while (tokenizer->TokenBytes(id) != bytes) id = TokenId{static_cast<int32_t>(id) + 1};
    return id;
  };
  const TokenId part = token_of("\xE2");
  const std::vector<TokenId> answer = {part, part, part, token_of("s")};
  for (const auto& [text, extent] :
       {std::pair{"\uFFFD\uFFFD\uFFFD", Extent{3, 9}},
        std::pair{"\uFFFD\uFFFD\uFFFDs", Extent{4, 10}}, std::pair{"x", Extent{0, 0}},
        std::pair{"\uFFFD\uFFFDx", Extent{2, 6}}, std::pair{"\uFFFDs", Extent{1, 3}}}) {
    EXPECT_EQ(TurnSpeller(tokenizer.get(), text).Spell(answer), extent) << text;
  }
}

// Another text that begins as the answer does: whole words of it are taken, those before a space.
TEST(TurnSpellerTest, DividesNoWordOfATextThatIsAnotherOne) {
  struct Case {
    const char* text;
    size_t bytes;  // that are taken
  };
  for (auto* const make : {&ByteLevel, &SentencePiece}) {
    const std::unique_ptr<Tokenizer> tokenizer = make();
    std::vector<TokenId> answer =
        *tokenizer->Encode("The answer is naïvely 3.\nWhy?", {.add_bos = false, .continues = true});
    for (const bool ends : {false, true}) {
      if (ends) answer.push_back(*tokenizer->eos());
      for (const auto& [text, bytes] :
           {Case{"There are three.", 0}, Case{"The man", 3}, Case{"The  answer", 3},
            Case{"The answers are", 3}, Case{"The answer is naïvety", 13},
            Case{"The answer is 3", 13}, Case{"The answer is naïvely 3.\nWho?", 22},
            // The text ends there, or the answer does.
            Case{"The answer", 10}, Case{"The answer is naïvely 3.\nWhy?", 30},
            Case{"The answer is naïvely 3.\nWhy?!", 30},
            // A token was cut.
            Case{"The answ", 3}, Case{"The answer i", 10}}) {
        TurnSpeller speller(tokenizer.get(), text);
        EXPECT_EQ(speller.SpellWholeWords(answer).bytes, bytes) << text;
      }
    }
  }
}

// One greedy answer, asked for in 256 lengths, and cut in 256 places: as dear as the longest.
TEST(TurnSpellerTest, AConversationDetokenizesOnceWhatItsTurnsHaveInCommon) {
  constexpr size_t kTurns = 256, kTokens = 2000;
  const WatchedTokenizer tokenizer(ByteLevel());
  for (const bool ascending : {false, true}) {
    TurnMemory memory;
    const TurnSplicer splicer(&tokenizer, &memory);
    EncodeOptions options{.parse_special = true};
    const std::string prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    const auto first = splicer.Encode(prompt, options, "scope");
    ASSERT_TRUE(first.ok());
    const std::vector<TokenId> again = *tokenizer.Encode(" a", {.add_bos = false});
    ASSERT_EQ(again.size(), 1u);
    for (size_t i = 0; i < kTurns; ++i) {
      const size_t size = kTokens - (ascending ? kTurns - 1 - i : i);
      memory.Remember(first->key, std::vector<TokenId>(size, again[0]));
    }
    std::string text = prompt;
    for (size_t i = 0; i < kTokens + 100; ++i) text += " a";
    const std::vector<TextSpan> content = {{prompt.size(), text.size()}};
    text += "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n";
    options.plain_spans = content;
    const size_t before = tokenizer.spelled_tokens();
    const auto spliced = splicer.Encode(text, options, "scope");
    ASSERT_TRUE(spliced.ok());
    EXPECT_EQ(spliced->reused_tokens, kTokens);
    EXPECT_LT(tokenizer.spelled_tokens() - before, kTokens + kTurns * (TurnSpeller::kStride + 1));
  }
}

}  // namespace
}  // namespace refrain::engine
