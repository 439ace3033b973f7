// Hostile texts and files, special tokens, the forms of tokenizer.json.

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/text/create_tokenizer.h"
#include "engine/text/pair_merger.h"
#include "engine/text/tokenizer_json.h"
#include "tests/engine/text/text_test_data.h"
#include "tests/support/slow_build.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::ordered_json;

std::string Repeat(const std::string& part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

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
  LongestStretch() : begin_(Now()), last_(begin_) {}
  std::chrono::nanoseconds longest() const { return longest_; }
  std::chrono::nanoseconds whole() const { return last_ - begin_; }
  void Checkpoint() override {
    longest_ = std::max(longest_, Now() - last_);
    last_ = Now();
  }

 private:
  static std::chrono::nanoseconds Now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

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
  using Clock = std::chrono::steady_clock;
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
          const auto begin = Clock::now();
          EXPECT_FALSE(EncodeOrFail(**tokenizer, Repeat(part, bytes), {}).empty()) << name << part;
          best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
        }
        return best;
      };
      EXPECT_LT(seconds(1 << 17), 32 * seconds(1 << 14)) << name << part;
    }
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
  pieces.tokens[1] = "b";
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

// The fast tokenizer of Llama 2: pieces, byte fallback, merges instead of scores.
Json Llama2StyleJson() {
  Json json;
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    vocab[std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">"] = 3 + byte;
  }
  int id = 259;
  for (const char* piece : {"\u2581", "h", "i", "\u2581h", "\u2581hi"}) vocab[piece] = id++;
  json["model"] = {{"type", "BPE"}, {"byte_fallback", true}, {"unk_token", "<unk>"}};
  json["model"]["vocab"] = vocab;
  json["model"]["merges"] = {"\u2581 h", "\u2581h i"};
  json["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "\u2581"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single",
                             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}};
  json["added_tokens"] = {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
                          {{"id", 1}, {"content", "<s>"}, {"special", true}},
                          {{"id", 2}, {"content", "</s>"}, {"special", true}}};
  return json;
}

TEST(TokenizerJsonTest, ReadsSentencePieceConversions) {
  const auto spec =
      ParseTokenizerJson({.tokenizer_json = Llama2StyleJson().dump(),
                          .tokenizer_config_json = R"({"eos_token": {"content": "</s>"}})",
                          .generation_config_json = R"({"eos_token_id": [2, 0]})"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->kind, TokenizerKind::kSentencePiece);
  EXPECT_EQ(spec->bos, kvcache::TokenId{1});
  const auto tokenizer = CreateTokenizer(*spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(EncodeOrFail(**tokenizer, "hi hi", {}), (std::vector<int>{1, 263, 263}));
  EXPECT_EQ(EncodeOrFail(**tokenizer, "h\n", {}), (std::vector<int>{1, 262, 3 + 10}));
  EXPECT_EQ(EncodeOrFail(**tokenizer, "<s>hi", {.parse_special = true, .add_bos = false}),
            (std::vector<int>{1, 263}));
  EXPECT_TRUE((*tokenizer)->IsEndOfGeneration(kvcache::TokenId{0}));
  EXPECT_EQ((*tokenizer)->eos(), kvcache::TokenId{2});
  EXPECT_TRUE((*tokenizer)->adds_space_prefix());
}

// The types of these tokens, which tokenizer.json has as added, not special ones.
std::string TypesOfAdded(const HuggingFaceTokenizerFiles& names) {
  Json json = Llama2StyleJson();
  int id = 264;
  for (const char* text : {"<|im_end|>", "<|endoftext|>", "<tool>", "<extra>"}) {
    json["added_tokens"].push_back({{"id", id++}, {"content", text}, {"special", false}});
  }
  const std::string text = json.dump();
  HuggingFaceTokenizerFiles files = names;
  files.tokenizer_json = text;
  const auto spec = ParseTokenizerJson(files);
  if (!spec.ok()) return std::string(spec.status().message());
  std::string types;
  for (size_t i = 264; i < spec->token_types.size(); ++i) {
    types.push_back(spec->token_types[i] == TokenType::kControl ? 'c' : 'u');
  }
  return types;
}

// A message that spells the end of its turn must not end it. As transformers' all_special_ids, but
// that what ends a turn by its name needs no role.
TEST(TokenizerJsonTest, TokensWithARoleAreControlTokensThoughNotCalledSpecial) {
  EXPECT_EQ(TypesOfAdded({}), "ccuu");
  EXPECT_EQ(TypesOfAdded({.tokenizer_config_json = R"({"eos_token": "<tool>"})"}), "cccu");
  EXPECT_EQ(TypesOfAdded({.special_tokens_map_json = R"({"pad_token": {"content": "<tool>"}})"}),
            "cccu");
  EXPECT_EQ(
      TypesOfAdded({.special_tokens_map_json = R"({"additional_special_tokens": ["<extra>"]})"}),
      "ccuc");
  EXPECT_EQ(TypesOfAdded({.tokenizer_config_json = R"({"extra_special_tokens": {"x": "<tool>"}})"}),
            "cccu");
  EXPECT_EQ(TypesOfAdded({.tokenizer_config_json = R"({"pad_token": "h"})"}), "ccuu");
}

// Of the vocabulary itself: a control token by its role, but what text is made of stays text.
TEST(TokenizerJsonTest, TokensOfTheVocabularyWithARoleAreControlTokens) {
  Json json = Llama2StyleJson();
  json["added_tokens"] = Json::array();
  const auto type_of = [&](const std::string& config, const std::string& token) {
    const std::string text = json.dump();
    const auto spec = ParseTokenizerJson({.tokenizer_json = text, .tokenizer_config_json = config});
    EXPECT_TRUE(spec.ok()) << spec.status();
    const auto at = std::find(spec->tokens.begin(), spec->tokens.end(), token);
    return spec->token_types[at - spec->tokens.begin()];
  };
  EXPECT_EQ(type_of(R"({"eos_token": "</s>"})", "</s>"), TokenType::kControl);
  EXPECT_EQ(type_of(R"({"pad_token": "</s>"})", "</s>"), TokenType::kControl);
  EXPECT_EQ(type_of("{}", "</s>"), TokenType::kNormal);
  EXPECT_EQ(type_of(R"({"pad_token": "h"})", "h"), TokenType::kNormal);
}

// No text is padded here, so a padding token needs no id; what begins or ends texts does.
TEST(TokenizerJsonTest, PassesOverAPadOrUnknownTokenThatIsNotThere) {
  const std::string json = Llama2StyleJson().dump();
  const auto parse = [&](const std::string& config) {
    return ParseTokenizerJson({.tokenizer_json = json, .tokenizer_config_json = config});
  };
  const auto spec = parse(R"({"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "</s>"})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->pad, std::nullopt);
  EXPECT_EQ(spec->unk, kvcache::TokenId{0});
  EXPECT_EQ(spec->template_tokens,
            (std::map<std::string, std::string>{
                {"pad_token", "[PAD]"}, {"unk_token", "[UNK]"}, {"eos_token", "</s>"}}));
  EXPECT_EQ(parse(R"({"eos_token": "[EOS]"})").status().message(),
            "tokenizer_config.json: eos_token '[EOS]' is not in the vocabulary");
}

// What makes work for every token of the vocabulary, or for every byte of a request, is bounded.
TEST(TokenizerJsonTest, RefusesWhatWouldTakeForEver) {
  const auto refusal = [](const Json& json, const Json& generation) {
    const auto spec = ParseTokenizerJson(
        {.tokenizer_json = json.dump(), .generation_config_json = generation.dump()});
    if (!spec.ok()) return std::string(spec.status().message());
    return std::string(CreateTokenizer(*spec).status().message());
  };
  Json json = Llama2StyleJson();
  EXPECT_EQ(refusal(json, {{"eos_token_id", std::vector<int>(1024, 2)}}), "");
  EXPECT_EQ(refusal(json, {{"eos_token_id", std::vector<int>(1025, 2)}}),
            "generation_config.json: eos_token_id has 1025 token ids; at most 1024 are supported");
  for (int i = 0; i < 64; ++i) {
    json["post_processor"]["single"].push_back({{"SpecialToken", {{"id", "none"}}}});
  }
  EXPECT_EQ(refusal(json, Json::object()),
            "tokenizer.json: the post_processor adds more than 64 special tokens");
  for (const size_t bytes : {512, 513}) {
    json = Llama2StyleJson();
    json["added_tokens"].push_back(
        {{"id", 264}, {"content", std::string(bytes, 'a')}, {"special", true}});
    EXPECT_EQ(refusal(json, Json::object()),
              bytes == 512 ? "" : "the special token 264 has 513 bytes; at most 512 are supported");
  }
}

// Expected ids: Hugging Face tokenizers.
TEST(TokenizerJsonTest, BertsAndRobertasPostProcessorsAddBos) {
  for (const char* type : {"BertProcessing", "RobertaProcessing"}) {
    Json json = Llama2StyleJson();
    const Json pair = {{"type", type}, {"cls", {"<s>", 1}}, {"sep", {"</s>", 2}}};
    for (const Json& post :
         {pair, Json{{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, pair}}}}) {
      json["post_processor"] = post;
      const auto spec = ParseTokenizerJson(json.dump());
      ASSERT_TRUE(spec.ok()) << spec.status();
      const auto tokenizer = CreateTokenizer(*spec);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
      EXPECT_EQ(EncodeOrFail(**tokenizer, "hi", {}), (std::vector<int>{1, 263}));
      EXPECT_EQ(spec->eos, kvcache::TokenId{2});
    }
  }
}

TEST(TokenizerJsonTest, RefusesPostProcessorsThatWouldChangeIds) {
  const auto message_of = [](const Json& post) {
    Json json = Llama2StyleJson();
    json["post_processor"] = post;
    const auto spec = ParseTokenizerJson(json.dump());
    return spec.ok() ? "accepted" : std::string(spec.status().message());
  };
  EXPECT_EQ(message_of({{"type", "ByteLevel"}}), "accepted");
  EXPECT_EQ(message_of(nullptr), "accepted");
  EXPECT_EQ(message_of({{"type", "Other"}}),
            "tokenizer.json: post_processor 'Other' is not supported");
  EXPECT_EQ(message_of({{"type", "BertProcessing"}, {"cls", {"<s>", 1}}, {"sep", {"</s>", 999}}}),
            "tokenizer.json: post_processor BertProcessing: sep is not a token and its id in the "
            "vocabulary");
  const Json bos = {{"SpecialToken", {{"id", "<s>"}}}};
  const Json text = {{"Sequence", {{"id", "A"}}}};
  EXPECT_EQ(message_of({{"type", "TemplateProcessing"}, {"single", {bos, bos, text}}}),
            "tokenizer.json: the post_processor puts more than one token before the text");
}

TEST(TokenizerJsonTest, RefusesDeepNestingWithoutRecursion) {
  constexpr size_t kDepth = 200'000;
  const auto spec = ParseTokenizerJson(
      {.tokenizer_json = Llama2StyleJson().dump(),
       .generation_config_json =
           "{\"eos_token_id\":" + std::string(kDepth, '[') + std::string(kDepth, ']') + "}"});
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(spec.status().message()).find("eos_token_id"), std::string::npos);
}

TEST(TokenizerJsonTest, RecognisesPublishedPreTokenizersAndKeepsOthers) {
  // Not the ordered kind: its search for 49,152 keys is linear.
  auto json = nlohmann::json::parse(ReadTestData("smollm2-tokenizer/tokenizer.json"));
  const auto name_of = [&](const Json& pre_tokenizer) {
    json["pre_tokenizer"] = pre_tokenizer;
    const auto spec = ParseTokenizerJson(json.dump());
    return spec.ok() ? spec->pre_tokenizer : std::string(spec.status().message());
  };
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto split = [&](const std::string& regex) {
    return Json{{"type", "Sequence"},
                {"pretokenizers", Json::array({{{"type", "Split"},
                                                {"pattern", {{"Regex", regex}}},
                                                {"behavior", "Isolated"},
                                                {"invert", false}},
                                               bytes})}};
  };
  EXPECT_EQ(SmolLm2Spec().pre_tokenizer, "smollm");
  EXPECT_EQ(name_of({{"type", "ByteLevel"}, {"add_prefix_space", false}}), "gpt2");
  EXPECT_EQ(name_of(split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                          "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")),
            "llama-bpe");
  EXPECT_EQ(name_of(split("\\w+")), "custom");
  EXPECT_NE(name_of({{"type", "BertPreTokenizer"}}).find("BertPreTokenizer"), std::string::npos);
}

TEST(TokenizerJsonTest, RefusesMalformedFilesByName) {
  const auto message_of = [](const std::string& json) {
    const auto spec = ParseTokenizerJson(json);
    return spec.ok() ? "accepted" : std::string(spec.status().message());
  };
  for (const char* text :
       {"", "{", "[]", "null", "{}", R"({"model": 3})", R"({"model": {"type": "BPE"}})",
        R"({"model": {"type": "BPE", "vocab": [], "merges": []}})"}) {
    EXPECT_NE(message_of(text), "accepted") << text;
  }
  EXPECT_NE(message_of(R"({"model": {"type": "WordPiece"}})").find("WordPiece"), std::string::npos);
  Json json = Llama2StyleJson();
  json["model"]["vocab"]["h"] = 4'000'000'000;
  EXPECT_NE(message_of(json.dump()).find("'h'"), std::string::npos) << message_of(json.dump());
  json["model"]["vocab"]["h"] = -1;
  EXPECT_NE(message_of(json.dump()).find("'h'"), std::string::npos);
  json["model"]["vocab"]["h"] = 261;
  EXPECT_NE(message_of(json.dump()).find("both have id 261"), std::string::npos);
  json = Llama2StyleJson();
  json["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_NE(message_of(json.dump()).find("Lowercase"), std::string::npos);
  json = Llama2StyleJson();
  json["added_tokens"][0]["lstrip"] = true;
  EXPECT_NE(message_of(json.dump()).find("lstrip"), std::string::npos);
}

}  // namespace
}  // namespace refrain::engine
