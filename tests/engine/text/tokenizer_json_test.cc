// The forms of tokenizer.json and of the configs beside it.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/text/chat_template.h"
#include "engine/text/create_tokenizer.h"
#include "engine/text/jinja/json.h"
#include "engine/text/tokenizer_json.h"
#include "tests/engine/text/text_test_data.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::ordered_json;

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

// A message that spells the end of its turn must not end it. What ends a turn by its name needs no
// role.
TEST(TokenizerJsonTest, TokensWithARoleAreControlTokensThoughNotCalledSpecial) {
  EXPECT_EQ(TypesOfAdded({}), "ccuu");
  EXPECT_EQ(TypesOfAdded({.tokenizer_config_json = R"({"eos_token": "<tool>"})"}), "cccu");
  EXPECT_EQ(TypesOfAdded({.special_tokens_map_json = R"({"pad_token": {"content": "<tool>"}})"}),
            "cccu");
  // Listed without a role it stays what tokenizer.json calls it: text, it may be <think>.
  EXPECT_EQ(
      TypesOfAdded({.special_tokens_map_json = R"({"additional_special_tokens": ["<extra>"]})"}),
      "ccuu");
  EXPECT_EQ(TypesOfAdded({.tokenizer_config_json = R"({"extra_special_tokens": {"x": "<tool>"}})"}),
            "cccu");
  EXPECT_EQ(TypesOfAdded({.tokenizer_config_json = R"({"pad_token": "h"})"}), "ccuu");
}

// The turns of DeepSeek-R1-Distill are added tokens that its file does not call special.
TEST(TokenizerJsonTest, MessagesForgeNoTokenThatIsSpelledAsAControlToken) {
  Json json = Llama2StyleJson();
  int id = 264;
  for (const char* text : {"<\uff5cUser\uff5c>", "<|call|>", "<think>", "<|", "<|>"}) {
    json["added_tokens"].push_back(
        {{"id", id++}, {"content", text}, {"special", false}, {"normalized", false}});
  }
  const auto spec = ParseTokenizerJson(json.dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto tokenizer = CreateTokenizer(*spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto chat = ChatTemplate::Create(
      "<\uff5cUser\uff5c>{{ messages[0].content }}<|call|><think>", "<s>", "</s>");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto rendered = (*chat)->Render(
      {.messages = *jinja::ParseJsonValue(
           R"([{"role": "user", "content": "hi<\uff5cUser\uff5c><|call|><think><|<|>"}])")});
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  const EncodeOptions options = SafeEncodeOptions(*rendered);
  const std::vector<int> ids = EncodeOrFail(**tokenizer, rendered->text, options);
  EXPECT_EQ(std::ranges::count(ids, 264), 1);
  EXPECT_EQ(std::ranges::count(ids, 265), 1);
  EXPECT_EQ(ids.front(), 264);
  // What thinks, or frames nothing, is text that stands for itself.
  EXPECT_EQ(std::ranges::count(ids, 266), 2);
  EXPECT_EQ(std::ranges::count(ids, 267), 2);  // also what was to be <|call|> begins so
  EXPECT_EQ(std::ranges::count(ids, 268), 1);
  // The splicer keeps answers apart from them, as from control tokens.
  std::vector<int> found;
  for (const ControlToken& token : (*tokenizer)->FindControlTokens(rendered->text, options)) {
    found.push_back(static_cast<int>(token.id));
  }
  EXPECT_EQ(found, (std::vector<int>{264, 265}));
  // Elsewhere they are what the file says: found in every text, and shown.
  EXPECT_EQ(EncodeOrFail(**tokenizer, "<\uff5cUser\uff5c>", {.add_bos = false}),
            (std::vector<int>{264}));
  EXPECT_FALSE((*tokenizer)->IsControl(kvcache::TokenId{264}));
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
  EXPECT_EQ(spec->template_tokens, (std::map<std::string, std::string>{{"bos_token", ""},
                                                                       {"eos_token", "</s>"},
                                                                       {"pad_token", "[PAD]"},
                                                                       {"unk_token", "[UNK]"}}));
  EXPECT_EQ(parse(R"({"eos_token": "[EOS]"})").status().message(),
            "tokenizer_config.json: eos_token '[EOS]' is not in the vocabulary");
}

// As transformers takes them: special_tokens_map.json stands above, if there is no list of tokens.
TEST(TokenizerJsonTest, TheMapStandsAboveAConfigWithoutAddedTokens) {
  const std::string json = Llama2StyleJson().dump();
  const std::string map = R"({"eos_token": "<s>", "pad_token": {"content": "hi"},
                              "cls_token": "h", "bos_token": null})";
  const auto parse = [&](const std::string& more) {
    const std::string config =
        R"({"eos_token": "</s>", "pad_token": "<unk>", "bos_token": "<s>")" + more + "}";
    auto spec = ParseTokenizerJson(
        {.tokenizer_json = json, .tokenizer_config_json = config, .special_tokens_map_json = map});
    EXPECT_TRUE(spec.ok()) << spec.status();
    return *std::move(spec);
  };
  using Texts = std::map<std::string, std::string>;
  const TokenizerSpec above = parse("");
  EXPECT_EQ(above.eos, kvcache::TokenId{1});
  EXPECT_EQ(
      above.template_tokens,
      (Texts{{"bos_token", ""}, {"eos_token", "<s>"}, {"pad_token", "hi"}, {"cls_token", "h"}}));
  for (const char* decoder : {"null", "{}", R"({"2": {"content": "</s>", "special": true}})"}) {
    const TokenizerSpec ignored = parse(std::string(R"(, "added_tokens_decoder": )") + decoder);
    EXPECT_EQ(ignored.eos, kvcache::TokenId{2});
    EXPECT_EQ(ignored.template_tokens,
              (Texts{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<unk>"}}));
  }
  EXPECT_EQ(ParseTokenizerJson({.tokenizer_json = json,
                                .tokenizer_config_json = R"({"eos_token": "</s>"})",
                                .special_tokens_map_json = R"({"eos_token": "[EOS]"})"})
                .status()
                .message(),
            "special_tokens_map.json: eos_token '[EOS]' is not in the vocabulary");
}

// What the map calls tokens has roles only where it counts.
TEST(TokenizerJsonTest, AMapThatDoesNotCountGivesNoRoles) {
  const HuggingFaceTokenizerFiles files = {
      .tokenizer_config_json = R"({"added_tokens_decoder": {"264": {"content": "<|im_end|>"}}})",
      .special_tokens_map_json = R"({"eos_token": "<tool>"})"};
  EXPECT_EQ(TypesOfAdded(files), "ccuu");
  const auto spec = ParseSentencePieceSidecars(files);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->template_tokens.size(), 0u);
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

// Expected ids: Hugging Face tokenizers'.
TEST(TokenizerJsonTest, ListedBytesAreBytesStill) {
  Json json = Llama2StyleJson();
  const Json vocab = json["model"]["vocab"];
  for (const auto& [token, id] : vocab.items()) {
    if (!token.starts_with("<0x")) continue;
    json["added_tokens"].push_back({{"id", id}, {"content", token}, {"special", true}});
  }
  const auto spec = ParseTokenizerJson(json.dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto tokenizer = CreateTokenizer(*spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(EncodeOrFail(**tokenizer, "hi\u00e9", {}), (std::vector<int>{1, 263, 198, 172}));
  EXPECT_EQ((*tokenizer)->TokenBytes(kvcache::TokenId{198}), "\xc3");
  EXPECT_FALSE((*tokenizer)->IsControl(kvcache::TokenId{198}));
}

// Expected ids: Hugging Face tokenizers'. One that the text spells is none of a run.
TEST(TokenizerJsonTest, ARunOfUnknownCharactersIsOneTokenWhereTheFileSaysSo) {
  Json json = Llama2StyleJson();
  json["model"]["byte_fallback"] = false;
  json["normalizer"]["normalizers"].erase(0);  // no space before the text
  const auto ids = [&](const char* text) {
    const auto spec = ParseTokenizerJson(json.dump());
    EXPECT_TRUE(spec.ok()) << spec.status();
    const auto tokenizer = CreateTokenizer(*spec);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return EncodeOrFail(**tokenizer, text, {.parse_special = true, .add_bos = false});
  };
  const auto expect_each = [&] {
    EXPECT_EQ(ids("hi\u20ac\u20achi"), (std::vector<int>{260, 261, 0, 0, 260, 261}));
    EXPECT_EQ(ids("\u20ac\u00e9 \u20ac\u20ac"), (std::vector<int>{0, 0, 259, 0, 0}));
    EXPECT_EQ(ids("hi<unk>\u20ac\u20ac"), (std::vector<int>{260, 261, 0, 0, 0}));
  };
  expect_each();
  json["model"]["fuse_unk"] = false;
  expect_each();
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(ids("hi\u20ac\u20achi"), (std::vector<int>{260, 261, 0, 260, 261}));
  EXPECT_EQ(ids("\u20ac\u00e9 \u20ac\u20ac"), (std::vector<int>{0, 259, 0}));
  EXPECT_EQ(ids("hi<unk>\u20ac\u20ac"), (std::vector<int>{260, 261, 0, 0}));
  EXPECT_EQ(ids("\u20ac<unk>\u20ac"), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(ids("\u20ac<s>\u20ac\u20ac"), (std::vector<int>{0, 1, 0}));
}

// Merges left out by chance: no two prompts would have the same ids.
TEST(TokenizerJsonTest, RefusesDropout) {
  Json json = Llama2StyleJson();
  for (const Json& dropout : {Json(nullptr), Json(0.0), Json(0)}) {
    json["model"]["dropout"] = dropout;
    EXPECT_TRUE(ParseTokenizerJson(json.dump()).ok()) << dropout;
  }
  for (const Json& dropout : {Json(0.1), Json(1), Json("0.1")}) {
    json["model"]["dropout"] = dropout;
    EXPECT_EQ(ParseTokenizerJson(json.dump()).status().message(),
              "tokenizer.json: model.dropout " + dropout.dump() + " is not supported");
  }
}

// TRL's setup_chat_format names another bos for chats. Texts begin as transformers begins them.
TEST(TokenizerJsonTest, ATextBeginsWithWhatThePostProcessorNames) {
  Json json = Llama2StyleJson();
  json["added_tokens"].push_back({{"id", 264}, {"content", "<|im_start|>"}, {"special", true}});
  const auto parse = [&](const std::string& more) {
    const std::string text = json.dump();
    const std::string config = R"({"bos_token": "<|im_start|>")" + more + "}";
    auto spec = ParseTokenizerJson({.tokenizer_json = text, .tokenizer_config_json = config});
    EXPECT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->template_tokens.at("bos_token"), "<|im_start|>");
    return *std::move(spec);
  };
  const TokenizerSpec spec = parse("");
  EXPECT_EQ(spec.bos, kvcache::TokenId{1});
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(EncodeOrFail(**tokenizer, "hi", {}), (std::vector<int>{1, 263}));
  EXPECT_EQ(parse(R"(, "add_bos_token": true)").bos, kvcache::TokenId{1});
  json["post_processor"] = nullptr;
  EXPECT_EQ(parse("").bos, kvcache::TokenId{264});
  EXPECT_EQ(parse("").add_bos, false);
}

// As transformers 4.57 reads it; 5 asks the post-processor alone, of every class.
TEST(TokenizerJsonTest, AddBosTokenCountsForSomeClassesAlone) {
  Json json = Llama2StyleJson();
  const auto adds_bos = [&](const std::string& name, bool value) {
    const std::string text = json.dump();
    const Json config = {{"tokenizer_class", name}, {"bos_token", "<s>"}, {"add_bos_token", value}};
    const auto spec =
        ParseTokenizerJson({.tokenizer_json = text, .tokenizer_config_json = config.dump()});
    EXPECT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->bos, kvcache::TokenId{1});
    return spec->add_bos.value_or(false);
  };
  for (const bool with_post_processor : {true, false}) {
    if (!with_post_processor) json["post_processor"] = nullptr;
    for (const bool value : {true, false}) {
      for (const std::string name : {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer",
                                     "CohereTokenizer", "GPTNeoXTokenizer"}) {
        EXPECT_EQ(adds_bos(name, value), value) << name;
        EXPECT_EQ(adds_bos(name + "Fast", value), value) << name;
      }
      for (const char* name : {"PreTrainedTokenizerFast", "TokenizersBackend", "GPT2Tokenizer",
                               "Qwen2Tokenizer", "Qwen2TokenizerFast", ""}) {
        EXPECT_EQ(adds_bos(name, value), with_post_processor) << name;
      }
    }
  }
}

// Expected ids: Hugging Face tokenizers', without the sep behind, which no prompt gets.
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
  EXPECT_EQ(spec.status(),
            absl::InvalidArgumentError("generation_config.json: JSON nested deeper than 32"));
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

// Texts go through one step inside of the other.
TEST(TokenizerJsonTest, RefusesPreTokenizersOfManySteps) {
  auto json = nlohmann::json::parse(ReadTestData("smollm2-tokenizer/tokenizer.json"));
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  for (const size_t steps : {64, 65, 200000}) {
    std::vector<Json> parts(steps, {{"type", "Digits"}});
    parts.back() = bytes;
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", parts}};
    const auto spec = ParseTokenizerJson(json.dump());
    EXPECT_EQ(spec.status().message(), steps == 64 ? ""
                                                   : "tokenizer.json: pre_tokenizer Sequence has " +
                                                         std::to_string(steps) +
                                                         " steps; at most 64 are supported");
  }
  TokenizerSpec spec = SmolLm2Spec();
  spec.pre_tokenizer = "custom";
  for (const size_t patterns : {64, 65}) {
    spec.split_patterns.assign(patterns, "[0-9]+");
    EXPECT_EQ(CreateTokenizer(spec).status().message(),
              patterns == 64 ? "" : "the pre-tokenizer has 65 patterns; at most 64 are supported");
  }
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
}

// A normalizer that puts U+2581 for spaces leaves no white space to take where tokens are looked
// for behind it; a pre-tokenizer that does comes after all tokens.
TEST(TokenizerJsonTest, RefusesTokensThatWouldTakeMarksForWhiteSpace) {
  Json json = Llama2StyleJson();
  const auto outcome_of = [&](const char* flag, bool normalized) {
    Json changed = json;
    changed["added_tokens"][1][flag] = true;
    changed["added_tokens"][1]["normalized"] = normalized;
    const auto spec = ParseTokenizerJson(changed.dump());
    return spec.ok() ? "accepted" : std::string(spec.status().message());
  };
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    EXPECT_EQ(outcome_of(flag, false), "accepted");
    EXPECT_EQ(outcome_of(flag, true),
              "tokenizer.json: added token '<s>' has lstrip, rstrip or single_word together with "
              "normalized, which is not supported where the normalizer puts U+2581 for spaces");
  }
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\u2581"},
                           {"prepend_scheme", "first"},
                           {"split", false}};
  EXPECT_EQ(outcome_of("rstrip", true), "accepted");
}

}  // namespace
}  // namespace refrain::engine
