// Hostile texts and files, special tokens.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "engine/text/pair_merger.h"
#include "tests/engine/text/text_test_data.h"
#include "tests/support/cpu_time.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {
namespace {

using refrain::testing::ThreadCpuTime;

// A long word takes the heap, a short one the scan: both orders of merging must be one.
TEST(PairMergerTest, HeapAndScanEqualTheNaiveRule) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    PairMerger merger(0);
    std::vector<std::vector<std::pair<int, int>>> rules(
        40, std::vector<std::pair<int, int>>(40, {-1, 0}));
    for (int id = 4; id < 40; ++id) {
      const int left = random() % id, right = random() % id;
      if (rules[left][right].first >= 0) continue;
      rules[left][right] = {id / 2, id};  // pairs of rules share a rank
      merger.Add(left, right, id / 2, id);
    }
    std::vector<int32_t> symbols;
    for (unsigned n = random() % 200; n > 0; --n) {
      symbols.push_back(random() % 20 == 0 ? -1 : static_cast<int>(random() % 4));
    }
    std::vector<int32_t> naive = symbols;
    for (;;) {
      int best = -1;
      const auto rank = [&](int i) {
        return naive[i] < 0 || naive[i + 1] < 0 ? -1 : rules[naive[i]][naive[i + 1]].first;
      };
      for (int i = 0; i + 1 < static_cast<int>(naive.size()); ++i) {
        if (rank(i) >= 0 && (best < 0 || rank(i) < rank(best))) best = i;
      }
      if (best < 0) break;
      naive[best] = rules[naive[best]][naive[best + 1]].second;
      naive.erase(naive.begin() + best + 1);
    }
    PairMerger::Scratch scratch;
    merger.Merge(&symbols, &scratch);
    ASSERT_EQ(symbols, naive);
  }
}

TEST(HostileTextTest, OneMegabyteOfAnythingIsFast) {
  const std::unique_ptr<Tokenizer> bpe = SmolLm2Tokenizer();
  const auto pieces =
      CreateTokenizer(SpecOfSentencePieceModel(ReadTestData("llama2-tokenizer/tokenizer.model")));
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  std::mt19937 random(7);
  std::string letters, bytes;
  for (int i = 0; i < 1 << 20; ++i) {
    letters.push_back(static_cast<char>('a' + random() % 26));
    bytes.push_back(static_cast<char>(random()));
  }
  for (const std::string& text :
       {Repeat("a", 1 << 20), Repeat(" ", 1 << 20), Repeat("\n", 1 << 20), Repeat(" \n", 1 << 20),
        Repeat("'", 1 << 20), Repeat("1", 1 << 20), Repeat("日", 1 << 20), Repeat("<|im_", 1 << 20),
        Repeat("<|im_end|>", 1 << 20), Repeat("\xF0\x9F", 1 << 20), letters, bytes}) {
    for (const Tokenizer* tokenizer : {bpe.get(), pieces->get()}) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_FALSE(EncodeOrFail(*tokenizer, text, {.parse_special = true}).empty());
      // A quadratic algorithm takes an hour; a loaded machine under a sanitizer stays far below
      // this.
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60))
          << text.substr(0, 10);
    }
  }
}

// Texts of many kinds: what the bound says of none of them is more than there is; of usual ones it
// says something.
TEST(HostileTextTest, NoTextHasFewerTokensThanTold) {
  const std::unique_ptr<Tokenizer> bpe = SmolLm2Tokenizer();
  const auto pieces =
      CreateTokenizer(SpecOfSentencePieceModel(ReadTestData("llama2-tokenizer/tokenizer.model")));
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  constexpr size_t kBytes = 100'000;
  std::mt19937 random(8);
  std::string bytes, controls;
  while (bytes.size() < kBytes) {
    bytes.push_back(static_cast<char>(random()));
    controls.push_back(static_cast<char>(random() % 32));
  }
  for (const Tokenizer* tokenizer : {bpe.get(), pieces->get()}) {
    size_t longest = 0;
    std::string longest_text;
    for (size_t id = 0; id < tokenizer->vocab_size(); ++id) {
      const auto token = tokenizer->TokenBytes(kvcache::TokenId{static_cast<int32_t>(id)});
      if (token.size() <= longest) continue;
      longest = token.size();
      longest_text = token;
    }
    for (const std::string& text :
         {std::string(), std::string("a"), Repeat(longest_text, kBytes), Repeat(" ", kBytes),
          Repeat("\n", kBytes), Repeat("\x04", kBytes), Repeat("\xE2\x96\x81", kBytes),
          Repeat("\xF1\x80\x80\x80", kBytes), Repeat("\x80", kBytes), Repeat("日", kBytes),
          Repeat("<|im_end|>", kBytes), Repeat("The cat sat. ", kBytes), bytes, controls}) {
      EXPECT_LE(tokenizer->FewestTokens(text),
                EncodeOrFail(*tokenizer, text, {.parse_special = true}).size())
          << text.substr(0, 10);
    }
    EXPECT_GE(tokenizer->FewestTokens(Repeat("The cat sat. ", kBytes)), kBytes / 300);
  }
}

// The longest that a tokenizer works without asking its pace, in processor time of the thread.
class LongestStretch : public EncodePace {
 public:
  LongestStretch() : begin_(ThreadCpuTime()), last_(begin_) {}
  std::chrono::nanoseconds longest() const { return longest_; }
  std::chrono::nanoseconds whole() const { return last_ - begin_; }
  void Checkpoint() override {
    longest_ = std::max(longest_, ThreadCpuTime() - last_);
    last_ = ThreadCpuTime();
  }

 private:
  const std::chrono::nanoseconds begin_;
  std::chrono::nanoseconds last_;
  std::chrono::nanoseconds longest_{};
};

// A step of running streams meets no more than a slice's length and one such stretch of it. The
// longest are the search for special tokens, the check of the encoding (each 0.5 ms a megabyte) and
// the memory of a word of a megabyte. Bounds are shares, so that they hold on any machine; under a
// sanitizer, which slows our code and not the libraries', shares shift by up to a half.
TEST(HostileTextTest, OneMegabyteGivesWayAgainAndAgain) {
  std::mt19937 random(9);
  std::string words;
  while (words.size() < 1 << 20) {
    for (unsigned letters = random() % 12; letters > 0; --letters) {
      words.push_back(static_cast<char>('a' + random() % 26));
    }
    words += random() % 9 == 0 ? ".\n" : " ";
  }
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* name : {"smollm", "llama-bpe", "qwen2"}) {
    TokenizerSpec spec = SmolLm2Spec();
    spec.pre_tokenizer = name;
    tokenizers.push_back(*CreateTokenizer(spec));
  }
  tokenizers.push_back(
      *CreateSentencePieceTokenizer(ReadTestData("llama2-tokenizer/tokenizer.model")));
  constexpr double kShift = refrain::testing::kSlowBuildFactor > 1 ? 1.5 : 1;
  const std::pair<std::string, double> kBounds[] = {{words, 0.03 * kShift},
                                                    {Repeat("a", 1 << 20), 0.2},
                                                    {Repeat(" \n", 1 << 20), 0.2},
                                                    {Repeat("<|im_end|>", 1 << 20), 0.2}};
  for (const auto& [text, bound] : kBounds) {
    for (size_t i = 0; i < tokenizers.size(); ++i) {
      double share = 1;  // the least of three: a page fault or an interrupt counts as work, too
      for (int round = 0; round < 3 && share >= bound; ++round) {
        LongestStretch pace;
        ASSERT_TRUE(tokenizers[i]->Encode(text, {.parse_special = true, .pace = &pace}).ok());
        pace.Checkpoint();
        share = std::min(share, static_cast<double>(pace.longest().count()) / pace.whole().count());
      }
      EXPECT_LT(share, bound) << "tokenizer " << i << ", " << text.substr(0, 10);
    }
  }
}

TEST(HostileTextTest, NamedPatternsAreLinear) {
  for (const char* name :
       {"llama-bpe", "qwen2", "gpt2", "tekken", "deepseek-llm", "deepseek-coder", "deepseek-v3"}) {
    TokenizerSpec spec = SmolLm2Spec();
    spec.pre_tokenizer = name;
    const auto tokenizer = CreateTokenizer(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const char* part :
         {" ", "\n", " \n", "a ", "\r", "'S", "!\n", "\u00a0 x", "A", "\u4f60A"}) {
      // The best of three: with the square of the length it would be 64 times as long.
      const auto seconds = [&](int bytes) {
        double best = 1e9;
        for (int i = 0; i < 3; ++i) {
          const auto begin = ThreadCpuTime();
          EXPECT_FALSE(EncodeOrFail(**tokenizer, Repeat(part, bytes), {}).empty()) << name << part;
          best = std::min(best, std::chrono::duration<double>(ThreadCpuTime() - begin).count());
        }
        return best;
      };
      EXPECT_LT(seconds(1 << 17), 32 * seconds(1 << 14)) << name << part;
    }
  }
}

// One match of all of the text, with more steps than a pattern of a model's file may take.
TEST(HostileTextTest, NamedPatternsHaveNoLimitOfSteps) {
  TokenizerSpec spec = SmolLm2Spec();
  for (const char* name : {"tekken", "deepseek-v3"}) {
    spec.pre_tokenizer = name;
    const auto tokenizer = CreateTokenizer(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ((*tokenizer)->Encode(Repeat(" ", 12'000'000), {}).status(), absl::OkStatus()) << name;
  }
}

// A pattern of a model's file may take exponential time: the text is refused, for good.
TEST(HostileTextTest, APatternThatTakesTooLongNamesTheByteAndTheLimit) {
  TokenizerSpec spec = SmolLm2Spec();
  spec.pre_tokenizer = "custom";
  const std::string text = "aab" + std::string(60, 'a') + "c b";
  const auto status_of = [&](const std::vector<std::string>& patterns, const std::string& of) {
    spec.split_patterns = patterns;
    const auto tokenizer = CreateTokenizer(spec);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return (*tokenizer)->Encode(of, {.parse_special = true}).status();
  };
  EXPECT_EQ(status_of({"(a+)+b"}, "aab aaaaac b"), absl::OkStatus());
  const std::string problem = "the tokenizer's pattern takes more than 10000000 steps at byte ";
  EXPECT_EQ(status_of({"(a+)+b"}, text), absl::InvalidArgumentError(problem + "3 of 66"));
  // In a stretch that begins behind a special token, and in a piece of an earlier pattern.
  EXPECT_EQ(status_of({"(a+)+b"}, "<|im_end|>" + text),
            absl::InvalidArgumentError(problem + "3 of 66, counted from byte 10"));
  EXPECT_EQ(status_of({"x+", "(a+)+b"}, "xx" + text),
            absl::InvalidArgumentError(problem + "5 of 68"));
}

// Compiled patterns have 32 KiB to go back through what they took: 4,000 spaces here.
TEST(HostileTextTest, APatternOfTheModelsTakesLongRuns) {
  TokenizerSpec spec = SmolLm2Spec();
  spec.pre_tokenizer = "custom";
  const auto encode = [&](const char* pattern, const std::string& text) {
    spec.split_patterns = {pattern};
    const auto tokenizer = CreateTokenizer(spec);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return (*tokenizer)->Encode(text, {});
  };
  const auto spaces = [](int count) { return "a" + Repeat(" ", count) + "b"; };
  for (const int count : {100, 5'000}) {
    const auto ids = encode("[^\\S\\r\\n]+|\\S+", spaces(count));
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, *encode(" +|[ab]", spaces(count)));
  }
  EXPECT_EQ(encode("[^\\S\\r\\n]+|\\S+", spaces(1'000'000)).status(),
            absl::InvalidArgumentError("the tokenizer's pattern takes more than 64 MiB of memory "
                                       "at byte 1 of 1000002"));
}

TEST(TokenizerTest, ThreadsShareOneTokenizer) {
  const std::unique_ptr<Tokenizer> tokenizer = SmolLm2Tokenizer();
  const std::string text = Repeat("The quick brown fox, naïve café 😀 jumps 123 times. ", 20000);
  const std::vector<int> expected = EncodeOrFail(*tokenizer, text, {});
  const std::unique_ptr<Tokenizer> fresh = SmolLm2Tokenizer();
  std::vector<std::thread> threads;
  std::vector<std::vector<int>> got(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { got[i] = EncodeOrFail(*fresh, text, {}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int>& ids : got) EXPECT_EQ(ids, expected);
}

// Special tokens that share prefixes; content may not take part in a control token.
TEST(TokenizerTest, TakesTheLongestSpecialTokenOutsideOfPlainSpans) {
  TokenizerSpec spec = SmolLm2Spec();
  spec.tokens.push_back("<|im_");
  spec.tokens.push_back("<tool>");
  spec.token_types.push_back(TokenType::kControl);
  spec.token_types.push_back(TokenType::kUserDefined);
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "<|im_end|><|im_e<tool>";
  const EncodeOptions special{.parse_special = true};
  EXPECT_EQ(EncodeOrFail(**tokenizer, text, special), (std::vector<int>{2, 49152, 85, 49153}));
  EXPECT_EQ(EncodeOrFail(**tokenizer, "<tool>", {}), (std::vector<int>{49153}));
  const auto with_span = [&](size_t begin, size_t end) {
    const TextSpan span{begin, end};
    return EncodeOrFail(**tokenizer, "<|im_end|>",
                        {.parse_special = true, .plain_spans = {&span, 1}});
  };
  const std::vector<int> plain = {44, 108, 306, 79, 486, 108, 46};
  EXPECT_EQ(with_span(0, 10), plain);
  EXPECT_EQ(with_span(0, 1), plain);
  EXPECT_EQ(with_span(10, 10), (std::vector<int>{2}));
  // The end is content: the shorter token in front of it still counts.
  EXPECT_EQ(with_span(5, 10).front(), 49152);
  EXPECT_EQ(with_span(9, 10).front(), 49152);
}

TEST(TokenizerTest, RefusesBrokenSpecsByName) {
  const TokenizerSpec good = SmolLm2Spec();
  const auto message_of = [](const TokenizerSpec& spec) {
    const auto tokenizer = CreateTokenizer(spec);
    return tokenizer.ok() ? "accepted" : std::string(tokenizer.status().message());
  };
  TokenizerSpec spec = good;
  spec.tokens[500] = spec.tokens[400];
  EXPECT_NE(message_of(spec).find("tokens 400 and 500"), std::string::npos) << message_of(spec);
  spec = good;
  spec.token_types.pop_back();
  EXPECT_NE(message_of(spec).find("49151 token types"), std::string::npos) << message_of(spec);
  spec = good;
  spec.merges[7] = "nonesuch q";
  EXPECT_NE(message_of(spec).find("merge 7"), std::string::npos) << message_of(spec);
  for (const char* merge : {"", " ", "a", "a ", " a"}) {
    spec.merges[7] = merge;
    EXPECT_NE(message_of(spec).find("merge 7"), std::string::npos) << message_of(spec);
  }
  spec = good;
  spec.eos = kvcache::TokenId{49152};
  EXPECT_NE(message_of(spec).find("eos token id 49152"), std::string::npos) << message_of(spec);
  spec.eos = kvcache::TokenId{-1};
  EXPECT_NE(message_of(spec).find("eos token id -1"), std::string::npos) << message_of(spec);
  spec = good;
  spec.pre_tokenizer = "nonesuch";
  EXPECT_NE(message_of(spec).find("nonesuch"), std::string::npos) << message_of(spec);
  EXPECT_NE(message_of(TokenizerSpec()).find("no tokens"), std::string::npos);

  TokenizerSpec pieces;
  pieces.kind = TokenizerKind::kSentencePiece;
  pieces.tokens = {"a", "b"};
  EXPECT_NE(message_of(pieces).find("scores"), std::string::npos) << message_of(pieces);
  pieces.scores = {0, std::stof("nan")};
  EXPECT_NE(message_of(pieces).find("not a number"), std::string::npos) << message_of(pieces);
  pieces.scores = {0, 1};
  pieces.tokens[1] = std::string(256, 'b');  // each cut of a piece is looked up
  EXPECT_EQ(message_of(pieces), "accepted");
  pieces.tokens[1] += 'b';
  EXPECT_NE(message_of(pieces).find("token 1 has 257 bytes; pieces with scores have at most 256"),
            std::string::npos)
      << message_of(pieces);
  // So is each of a long text's substrings, which all are made of others.
  pieces.tokens[1] = "b";
  while (pieces.tokens.size() < 62'502) {
    std::string piece = std::to_string(pieces.tokens.size());
    pieces.tokens.push_back(piece.append(256 - piece.size(), 'c'));
  }
  pieces.scores.resize(pieces.tokens.size());
  EXPECT_NE(message_of(pieces).find("the pieces with scores have 16000002 bytes; together they "
                                    "have at most 16000000"),
            std::string::npos)
      << message_of(pieces);
  pieces.tokens.resize(2);
  pieces.scores.resize(2);
  pieces.unk = kvcache::TokenId{2};
  EXPECT_NE(message_of(pieces).find("unk token id 2"), std::string::npos) << message_of(pieces);
}

// The first GGUF files of Llama 3 name no pre-tokenizer and do not say that bos begins a text.
TEST(TokenizerTest, KnowsLlama3ByItsBeginOfText) {
  TokenizerSpec spec = SmolLm2Spec();
  EXPECT_EQ(AssumedPreTokenizer(spec), std::nullopt);
  const auto ids_as = [&](const char* name) {
    TokenizerSpec named = spec;
    named.pre_tokenizer = name;
    const auto tokenizer = CreateTokenizer(named);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return EncodeOrFail(**tokenizer, "I'LL pay 12345", {});
  };
  spec.add_bos.reset();
  for (const char* name : {"", "default"}) {
    spec.pre_tokenizer = name;
    EXPECT_EQ(AssumedPreTokenizer(spec), "gpt2");
    EXPECT_EQ(ids_as(name), ids_as("gpt2"));
  }
  spec.tokens.push_back("<|begin_of_text|>");
  spec.token_types.push_back(TokenType::kControl);
  spec.bos = kvcache::TokenId{49152};
  for (const char* name : {"", "default"}) {
    spec.pre_tokenizer = name;
    EXPECT_EQ(AssumedPreTokenizer(spec), "llama-bpe");
    EXPECT_EQ(ids_as(name), ids_as("llama-bpe"));
    EXPECT_EQ(ids_as(name).front(), 49152);
  }
  EXPECT_NE(ids_as("llama-bpe"), ids_as("gpt2"));
  spec.kind = TokenizerKind::kSentencePiece;
  EXPECT_EQ(AssumedPreTokenizer(spec), std::nullopt);
}

TEST(TokenizerTest, MergingNeverMakesAControlToken) {
  TokenizerSpec spec;
  spec.tokens = {"<", "s", ">", "<s", "<s>"};
  spec.token_types = {TokenType::kNormal, TokenType::kNormal, TokenType::kNormal,
                      TokenType::kNormal, TokenType::kControl};
  spec.merges = {"< s", "<s >"};
  spec.pre_tokenizer = "custom";
  spec.split_patterns = {".+"};
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(EncodeOrFail(**tokenizer, "<s>", {}), (std::vector<int>{3, 2}));
  EXPECT_EQ(EncodeOrFail(**tokenizer, "<s>", {.parse_special = true}), (std::vector<int>{4}));
}

// Files that pad with "!" say that it is special; what everybody writes stays in the text, and is
// that token wherever it stands. The ids are those of the tokenizers library for SmolLM2's file
// with token 17 declared so.
TEST(TokenizerTest, OneCharacterThatIsSpecialStaysText) {
  TokenizerSpec spec = SmolLm2Spec();
  ASSERT_EQ(spec.tokens[17], "!");
  spec.token_types[17] = TokenType::kControl;
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string text = "Hi! Wow!! a!b";
  const TextSpan content{0, text.size()};
  const std::vector<int> expected = {26843, 17, 25550, 17, 17, 253, 17, 82};
  EXPECT_EQ(EncodeOrFail(**tokenizer, text, {.parse_special = true, .plain_spans = {&content, 1}}),
            expected);
  EXPECT_EQ(EncodeOrFail(**tokenizer, text, {.parse_special = true}), expected);
  EXPECT_EQ(EncodeOrFail(**tokenizer, text, {}), expected);
  EXPECT_FALSE((*tokenizer)->IsControl(kvcache::TokenId{17}));
}

// Files whose unknown token is no control token write it <unk> all the same, as templates do.
TEST(TokenizerTest, ReadsTheUnknownTokenWhereSpecialTokensAreParsed) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  spec.tokens = {"<unk>", "\u2581", "a", "<", ">", "u", "n", "k"};
  spec.token_types.assign(spec.tokens.size(), TokenType::kNormal);
  spec.token_types[0] = TokenType::kUnknown;
  spec.scores.assign(spec.tokens.size(), -1.0f);
  spec.unk = kvcache::TokenId{0};
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(EncodeOrFail(**tokenizer, "a<unk>", {.parse_special = true}),
            (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(EncodeOrFail(**tokenizer, "a<unk>", {}), (std::vector<int>{1, 2, 3, 5, 6, 7, 4}));
  EXPECT_TRUE((*tokenizer)->IsControl(kvcache::TokenId{0})) << "a model that says it says nothing";
}

// A user-defined piece with a mark of a space never stands in a text as it is spelled.
TEST(TokenizerTest, MergesUserDefinedPiecesWithSpaces) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  spec.tokens = {"<unk>", "\u2581", "a", "b", "\u2581\u2581", "\u2581a", "ab"};
  spec.token_types.assign(spec.tokens.size(), TokenType::kNormal);
  spec.token_types[4] = spec.token_types[6] = TokenType::kUserDefined;
  spec.scores = {0, -9, -9, -9, -1, -2, -3};
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const EncodeOptions plain{.add_bos = false};
  EXPECT_EQ(EncodeOrFail(**tokenizer, " a", plain), (std::vector<int>{4, 2}));
  EXPECT_EQ(EncodeOrFail(**tokenizer, "a  ", plain), (std::vector<int>{5, 4}));
  EXPECT_EQ(EncodeOrFail(**tokenizer, "bab", plain), (std::vector<int>{1, 3, 6}));
}

// As Hugging Face decodes them. Merges make them, too, over the end of a word.
TEST(TokenizerTest, UserDefinedPiecesAreShownWithSpacesForMarks) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  spec.tokens = {"<unk>", "\u2581", "a", "b", "\u2581\u2581", "\u2581b", "a\u2581b"};
  spec.token_types.assign(spec.tokens.size(), TokenType::kNormal);
  spec.token_types[4] = spec.token_types[6] = TokenType::kUserDefined;
  spec.merges = {"\u2581 \u2581", "\u2581 b", "a \u2581b"};
  spec.add_space_prefix = false;
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->TokenBytes(kvcache::TokenId{4}), "  ");
  EXPECT_EQ((*tokenizer)->TokenBytes(kvcache::TokenId{6}), "a b");
  EXPECT_EQ(EncodeOrFail(**tokenizer, "b  a", {.add_bos = false}), (std::vector<int>{3, 4, 2}));
  EXPECT_EQ(EncodeOrFail(**tokenizer, "ba b", {.add_bos = false}), (std::vector<int>{3, 6}));
  // Spelled with marks, as the file has it.
  EXPECT_EQ(EncodeOrFail(**tokenizer, "b\u2581\u2581", {.add_bos = false}),
            (std::vector<int>{3, 4}));
}

}  // namespace
}  // namespace refrain::engine
