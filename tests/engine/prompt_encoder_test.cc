#include "engine/prompt_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/create_tokenizer.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::engine {
namespace {

using ::testing::ElementsAre;

TokenId T(int32_t id) { return TokenId{id}; }

class PromptEncoderTest : public ::testing::Test {
 protected:
  EncodedRequest Encode(Request request) {
    EncodedRequest encoded;
    encoded.request = std::move(request);
    const auto text = encoder_.Render(&encoded);
    status_ = text.ok() ? encoder_.Tokenize(*text, &encoded) : text.status();
    return encoded;
  }

  // Token of a byte: byte % 24.
  testing::FakeTokenizer tokenizer_{testing::LetterVocabulary()};
  PromptEncoder encoder_{
      &tokenizer_, nullptr, {.max_context_tokens = 8, .kv_capacity_tokens = 100}};
  absl::Status status_;
};

TEST_F(PromptEncoderTest, KeepsTheEndOfATruncatedPrompt) {
  Request request;
  request.prompt = TextPrompt{.text = "abcdefghijkl"};
  request.keep_prompt_tokens = 3;
  EXPECT_THAT(Encode(request).prompt, ElementsAre(T('j' % 24), T('k' % 24), T('l' % 24)));
  EXPECT_TRUE(status_.ok()) << status_;
  // A prompt of ids, and one that is short enough.
  request.prompt = TokenPrompt{.ids = {T(1), T(2), T(3), T(4)}};
  EXPECT_THAT(Encode(request).prompt, ElementsAre(T(2), T(3), T(4)));
  request.prompt = TokenPrompt{.ids = {T(1), T(2)}};
  EXPECT_THAT(Encode(request).prompt, ElementsAre(T(1), T(2)));
  // The context's limit counts what is kept.
  request.prompt = TextPrompt{.text = "abcdefghijkl"};
  request.keep_prompt_tokens.reset();
  Encode(request);
  EXPECT_FALSE(status_.ok());
}

// No limit counts the memory of a request that waits: it is that of its tokens.
TEST_F(PromptEncoderTest, KeepsNoMemoryForWhatIsCutOff) {
  constexpr int32_t kMany = 1'000'000;
  Request ids;
  ids.keep_prompt_tokens = 3;
  ids.prompt = TokenPrompt{.ids = std::vector<TokenId>(kMany, T(1))};
  const EncodedRequest of_ids = Encode(std::move(ids));
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(of_ids.prompt.size(), 3u);
  EXPECT_LT(of_ids.prompt.capacity(), 1024u);
  Request text;
  text.keep_prompt_tokens = 3;
  text.prompt = TextPrompt{.text = std::string(kMany, 'a')};
  const EncodedRequest of_text = Encode(std::move(text));
  EXPECT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(of_text.prompt.size(), 3u);
  EXPECT_LT(of_text.prompt.capacity(), 1024u);
}

TEST_F(PromptEncoderTest, KeepsNoMemoryForTokensToCome) {
  Request request;
  TokenPrompt prompt;
  prompt.ids.reserve(1000);
  prompt.ids.assign(5, T(1));
  request.prompt = std::move(prompt);
  EXPECT_LE(Encode(std::move(request)).prompt.capacity(), 6u);
}

// As Hugging Face's tokenizers cut: it counts as one of those that are kept.
TEST_F(PromptEncoderTest, KeepsTheBosOfATruncatedPrompt) {
  tokenizer_.bos_token = T(7);
  Request request;
  const auto kept = [&](int32_t tokens) {
    request.keep_prompt_tokens = tokens;
    const EncodedRequest encoded = Encode(request);
    EXPECT_TRUE(status_.ok()) << status_;
    EXPECT_EQ(encoded.truncated, tokens < 5);
    return encoded.prompt;
  };
  request.prompt = TextPrompt{.text = "abcd"};
  EXPECT_THAT(kept(5), ElementsAre(T(7), T('a' % 24), T('b' % 24), T('c' % 24), T('d' % 24)));
  EXPECT_THAT(kept(3), ElementsAre(T(7), T('c' % 24), T('d' % 24)));
  EXPECT_THAT(kept(2), ElementsAre(T(7), T('d' % 24)));
  EXPECT_THAT(kept(1), ElementsAre(T(7)));
  // One that the client wrote is a token like others.
  request.prompt = TokenPrompt{.ids = {T(7), T(1), T(2), T(3), T(4)}};
  EXPECT_THAT(kept(2), ElementsAre(T(3), T(4)));
  request.prompt = TextPrompt{.text = "abcde", .add_special_tokens = false};
  EXPECT_THAT(kept(2), ElementsAre(T('d' % 24), T('e' % 24)));
}

// A client that sent it, or did without it, has no added one.
TEST_F(PromptEncoderTest, TellsABosThatTheTextDoesNotSpell) {
  const auto added = [&](std::variant<TextPrompt, ChatPrompt, TokenPrompt> prompt,
                         std::optional<int32_t> kept = std::nullopt) {
    Request request;
    request.prompt = std::move(prompt);
    request.keep_prompt_tokens = kept;
    return Encode(request).added_bos;
  };
  EXPECT_FALSE(added(TextPrompt{.text = "ab"}));
  tokenizer_.bos_token = T(7);
  EXPECT_TRUE(added(TextPrompt{.text = "ab"}));
  EXPECT_FALSE(added(TextPrompt{.text = "ab", .add_special_tokens = false}));
  EXPECT_FALSE(added(TokenPrompt{.ids = {T(7), T(1)}}));
  EXPECT_TRUE(added(TextPrompt{.text = "ab"}, 3));
  EXPECT_TRUE(added(TextPrompt{.text = "ab"}, 2));
  EXPECT_TRUE(added(TextPrompt{.text = "ab"}, 1));
}

// Of the context of 8 there is room for so many tokens as are asked for at least, or it is said.
TEST_F(PromptEncoderTest, MinTokensBeyondTheContextAreRefused) {
  Request request;
  request.prompt = TokenPrompt{.ids = {T(1), T(2), T(3), T(4), T(5)}};
  request.stop.max_tokens = 100;
  request.stop.min_tokens = 3;
  Encode(request);
  EXPECT_TRUE(status_.ok()) << status_;
  request.stop.min_tokens = 4;
  Encode(request);
  EXPECT_EQ(status_.message(),
            "This model's maximum context length is 8 tokens. However, the prompt has 5 tokens, "
            "which leave no room for min_tokens, 4.");
}

// Embeddings are often padded: a model may generate such an id, and take it again.
TEST_F(PromptEncoderTest, TakesTheIdsOfTheModelThatTheTokenizerLacks) {
  const auto size = static_cast<int32_t>(tokenizer_.vocab_size());
  const PromptEncoder padded(
      &tokenizer_, nullptr,
      {.max_context_tokens = 8, .kv_capacity_tokens = 100, .vocab_size = size + 2});
  EncodedRequest encoded;
  encoded.request.prompt = TokenPrompt{.ids = {T(1), T(size + 1)}};
  absl::Status status = padded.Tokenize(std::nullopt, &encoded);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(encoded.prompt, ElementsAre(T(1), T(size + 1)));
  encoded.request.prompt = TokenPrompt{.ids = {T(size + 2)}};
  status = padded.Tokenize(std::nullopt, &encoded);
  EXPECT_EQ(status.message(),
            absl::StrCat("prompt has token id ", size + 2, ", the vocabulary has ", size + 2));
}

// A text waits once, however long it is.
TEST_F(PromptEncoderTest, RenderingTakesTheTextOutOfTheRequest) {
  const auto chat_template = ChatTemplate::Create("{{ messages[0].content }}", "", "");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  const PromptEncoder encoder(&tokenizer_, chat_template->get(),
                              {.max_context_tokens = 1 << 20, .kv_capacity_tokens = 1 << 20});
  const std::string said(1000, 'a');
  EncodedRequest text;
  text.request.prompt = TextPrompt{.text = said};
  const char* const bytes = std::get<TextPrompt>(text.request.prompt).text.data();
  const auto rendered = encoder.Render(&text);
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ((*rendered)->text, said);
  EXPECT_EQ((*rendered)->text.data(), bytes) << "a copy";
  EXPECT_EQ(encoder.Tokenize(*rendered, &text), absl::OkStatus());
  EXPECT_EQ(text.prompt.size(), said.size());

  EncodedRequest chat;
  jinja::Map message;
  message.Set("content", jinja::Value::String(said));
  ChatPrompt prompt;
  prompt.input.messages = jinja::Value::MakeList({jinja::Value::MakeMap(std::move(message))});
  chat.request.prompt = std::move(prompt);
  const auto shown = encoder.Render(&chat);
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ((*shown)->text, said);
  EXPECT_TRUE(std::get<ChatPrompt>(chat.request.prompt).input.messages.is_undefined());
}

// What a chat is answered is remembered in its tenant's part, found under tenant and salt.
TEST_F(PromptEncoderTest, AConversationsTurnIsItsTenants) {
  const auto chat_template = ChatTemplate::Create("{{ messages[0].content }}", "", "");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  TurnMemory turns;
  const PromptEncoder encoder(&tokenizer_, chat_template->get(),
                              {.max_context_tokens = 1 << 20, .kv_capacity_tokens = 1 << 20},
                              &turns);
  jinja::Map message;
  message.Set("role", jinja::Value::String("user"));
  message.Set("content", jinja::Value::String("hi"));
  ChatPrompt prompt;
  prompt.input.messages = jinja::Value::MakeList({jinja::Value::MakeMap(std::move(message))});
  EncodedRequest chat;
  chat.request.prompt = std::move(prompt);
  chat.request.tenant = "key";
  chat.request.cache_salt = "salt";
  const auto text = encoder.Render(&chat);
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_EQ(encoder.Tokenize(*text, &chat), absl::OkStatus());
  ASSERT_TRUE(chat.turn.has_value());
  EXPECT_EQ(chat.turn->tenant, "key");
  EXPECT_EQ(chat.turn->scope, TurnScope("key", "salt"));
}

// What the eviction policy hears of answers hangs on it.
TEST_F(PromptEncoderTest, TellsWhatAnswersAreToTheirClient) {
  const auto chat_template = ChatTemplate::Create(
      "{{ messages[0].content }}{% if tools %}{{ tools[0] }} <tool_call>{% endif %}", "", "");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status();
  ASSERT_EQ((*chat_template)->tool_format(), ToolFormat::kHermes);
  const PromptEncoder encoder(&tokenizer_, chat_template->get(),
                              {.max_context_tokens = 100, .kv_capacity_tokens = 100});
  const auto answers = [&](std::variant<TextPrompt, ChatPrompt, TokenPrompt> prompt,
                           std::optional<int32_t> kept = std::nullopt) {
    EncodedRequest encoded;
    encoded.request.prompt = std::move(prompt);
    encoded.request.keep_prompt_tokens = kept;
    const auto text = encoder.Render(&encoded);
    EXPECT_TRUE(text.ok() && encoder.Tokenize(*text, &encoded).ok());
    return encoded.answers;
  };
  const auto one = [](const char* key, const char* value) {
    jinja::Map map;
    map.Set(key, jinja::Value::String(value));
    return jinja::Value::MakeList({jinja::Value::MakeMap(std::move(map))});
  };
  ChatPrompt chat;
  chat.input.messages = one("content", "abc");
  EXPECT_TRUE(answers(chat).is_turn);
  EXPECT_EQ(answers(chat).calls, ToolFormat::kNone);
  chat.input.tools = one("name", "f");
  EXPECT_TRUE(answers(chat).is_turn);
  EXPECT_EQ(answers(chat).calls, ToolFormat::kNone) << "shown, but not to be called";
  chat.may_call_tools = true;
  EXPECT_EQ(answers(chat).calls, ToolFormat::kHermes);
  EXPECT_TRUE(answers(chat, 50).is_turn);
  EXPECT_FALSE(answers(chat, 2).is_turn) << "cut: the next one begins otherwise";
  EXPECT_FALSE(answers(TextPrompt{.text = "abc"}).is_turn);
  EXPECT_FALSE(answers(TokenPrompt{.ids = {T(1)}}).is_turn);
}

// Each repetition costs memory; the context bounds the prompt alone.
TEST_F(PromptEncoderTest, RefusesToEchoALongPromptInManyChoices) {
  constexpr int32_t kPromptTokens = 1 << 12;
  const PromptEncoder encoder(&tokenizer_, nullptr,
                              {.max_context_tokens = 1 << 20, .kv_capacity_tokens = 1 << 20});
  const auto status_of = [&](int32_t n, bool echo) {
    EncodedRequest encoded;
    encoded.request.prompt = TokenPrompt{.ids = std::vector<TokenId>(kPromptTokens, T(1))};
    encoded.request.n = n;
    encoded.request.echo = echo;
    return encoder.Tokenize(std::nullopt, &encoded);
  };
  constexpr int32_t kMost = Request::kMaxEchoedTokens / kPromptTokens;
  EXPECT_EQ(status_of(kMost, true), absl::OkStatus());
  EXPECT_EQ(status_of(kMost + 1, false), absl::OkStatus());
  const absl::Status refused = status_of(kMost + 1, true);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("4096 tokens in each of n = 65 choices are "
                                                      "266240, at most 262144"));
}

// What is held until the best are known is bounded as what is sent is.
TEST_F(PromptEncoderTest, RefusesToHoldMoreThanABoundUntilTheBestAreKnown) {
  const PromptEncoder encoder(&tokenizer_, nullptr,
                              {.max_context_tokens = 1 << 17, .kv_capacity_tokens = 1 << 20});
  const auto status_of = [&](int32_t sequences, int32_t max_tokens, std::optional<int32_t> top,
                             int32_t n = 1, bool beams = false) {
    EncodedRequest encoded;
    encoded.request.prompt = TokenPrompt{.ids = std::vector<TokenId>(100, T(1))};
    encoded.request.n = n;
    encoded.request.best_of = sequences;
    if (beams) encoded.request.beam.emplace();
    encoded.request.logprobs.top = top;
    encoded.request.stop.max_tokens = max_tokens;
    return encoder.Tokenize(std::nullopt, &encoded);
  };
  constexpr int32_t kAll = 1 << 20;  // cut to what the context leaves
  for (const bool beams : {false, true}) {
    EXPECT_EQ(status_of(8, 4096, std::nullopt, 1, beams), absl::OkStatus());
    EXPECT_EQ(status_of(8, 4096, 20, 1, beams), absl::OkStatus());
    EXPECT_EQ(status_of(8, kAll, std::nullopt, 1, beams), absl::OkStatus());
    EXPECT_EQ(status_of(128, 4000, 20, 1, beams).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status_of(128, 4000, 20, 127, beams).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(
      status_of(64, kAll, 0).message(),
      ::testing::AllOf(::testing::HasSubstr("best_of: 64 sequences of up to 130972 tokens"),
                       ::testing::HasSubstr("511 MiB"), ::testing::HasSubstr("at most 128 MiB")));
  // Nothing is held of what is sent as it comes; of beams all is.
  EXPECT_EQ(status_of(128, 4000, 20, 128), absl::OkStatus());
  EXPECT_FALSE(status_of(128, 4000, 20, 128, /*beams=*/true).ok());
}

// What the tokenizer refuses is the caller's to change, not to send again.
TEST_F(PromptEncoderTest, SaysWhichTextCannotBeTokenized) {
  TokenizerSpec spec;
  spec.tokens = {"a", "b", "c"};
  spec.token_types.assign(3, TokenType::kNormal);
  spec.pre_tokenizer = "custom";
  spec.split_patterns = {"(a+)+b"};
  const auto tokenizer = CreateTokenizer(spec);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const PromptEncoder encoder(tokenizer->get(), nullptr,
                              {.max_context_tokens = 1 << 20, .kv_capacity_tokens = 1 << 20});
  const auto status_of = [&](Request request) {
    EncodedRequest encoded;
    encoded.request = std::move(request);
    const auto text = encoder.Render(&encoded);
    return text.ok() ? encoder.Tokenize(*text, &encoded) : text.status();
  };
  const std::string slow = std::string(60, 'a') + "cb";
  const std::string problem = "the tokenizer's pattern takes more than 10000000 steps at byte 0";
  Request request;
  request.prompt = TextPrompt{.text = slow};
  EXPECT_EQ(status_of(request),
            absl::InvalidArgumentError("the prompt cannot be tokenized: " + problem + " of 62"));
  request.prompt = TextPrompt{.text = "ab"};
  request.sampling.bad_words = {slow};
  EXPECT_EQ(status_of(request), absl::InvalidArgumentError("bad_words: " + problem + " of 62"));
}

// By what the prompt itself has of tags, where nobody tells thoughts apart from answers, too.
TEST_F(PromptEncoderTest, LimitsTheThoughtThatThePromptLeavesTheModelIn) {
  const testing::FakeTokenizer tokenizer(
      {"<think>", "</think>", "a", "<", "/", "t", "h", "i", "n", "k", ">", "</s>"});
  const char* const source =
      "{{ messages[0].content }}{% if false %}</think>{% endif %}"
      "{% if add_generation_prompt %}<think>\n{% endif %}";
  const auto thinks = ChatTemplate::Create(source, "", "");
  const auto off = ChatTemplate::Create({.source = source, .finds_reasoning = false});
  ASSERT_TRUE(thinks.ok() && off.ok());
  OutputConstrainer constrainer(&tokenizer, tokenizer.vocab_size());
  const auto format =
      std::make_shared<OutputFormat>(OutputFormat{.form = OutputFormat::Regex{"a+"}, .field = "f"});
  // None: no limit.
  const auto start = [&](const ChatTemplate& chat_template,
                         std::variant<TextPrompt, ChatPrompt, TokenPrompt> prompt, bool has_form,
                         std::optional<int32_t> budget = 5) -> std::optional<ReasoningStart> {
    const PromptEncoder encoder(&tokenizer, &chat_template,
                                {.max_context_tokens = 100, .kv_capacity_tokens = 100}, nullptr,
                                &constrainer);
    EncodedRequest encoded;
    encoded.request.prompt = std::move(prompt);
    encoded.request.sampling.thinking_budget_tokens = budget;
    if (has_form) encoded.request.format = format;
    const auto text = encoder.Render(&encoded);
    EXPECT_TRUE(text.ok() && encoder.Tokenize(*text, &encoded).ok());
    const auto& limit = encoded.request.sampling.thinking_limit;
    if (limit == nullptr) return std::nullopt;
    EXPECT_EQ(limit->budget_tokens, 5);
    return limit->start;
  };
  const auto chat = [](bool opens) {
    jinja::Map message;
    message.Set("content", jinja::Value::String("</think>"));  // of the user
    ChatPrompt prompt;
    prompt.input.messages = jinja::Value::MakeList({jinja::Value::MakeMap(std::move(message))});
    prompt.input.add_generation_prompt = opens;
    return prompt;
  };
  const auto text = [](const char* said) { return TextPrompt{.text = said}; };
  for (const bool has_form : {false, true}) {
    EXPECT_EQ(start(**thinks, chat(true), has_form), ReasoningStart::kInside);
    EXPECT_EQ(start(**thinks, chat(false), has_form), ReasoningStart::kBefore);
    EXPECT_EQ(start(**thinks, chat(true), has_form, std::nullopt), std::nullopt);
    EXPECT_EQ(start(**off, text("a</think>\n"), has_form), std::nullopt);
  }
  EXPECT_EQ(start(**off, chat(true), false), ReasoningStart::kInside);
  EXPECT_EQ(start(**off, chat(false), false), ReasoningStart::kBefore);
  EXPECT_EQ(start(**off, text("a"), false), ReasoningStart::kBefore);
  EXPECT_EQ(start(**off, text("a<think>"), false), ReasoningStart::kBesideTag);
  EXPECT_EQ(start(**off, text("</think><think>a </"), false),
            ReasoningStart(ReasoningStart::kAmid, 2));
  EXPECT_EQ(start(**off, TokenPrompt{.ids = {T(2), T(0)}}, false), ReasoningStart::kBesideTag);
  EXPECT_EQ(start(**off, TokenPrompt{.ids = {T(0), T(2), T(1)}}, false), std::nullopt);
  // Who has a form there has no thought: the output is held to it from its first token on.
  EXPECT_EQ(start(**off, chat(true), true), std::nullopt);
  EXPECT_EQ(start(**off, text("a<think>"), true), std::nullopt);
  EXPECT_EQ(start(**off, TokenPrompt{.ids = {T(2), T(0)}}, true), std::nullopt);
}

// Counts the tokens that are spelled.
class SpellingTokenizer : public testing::FakeTokenizer {
 public:
  using FakeTokenizer::FakeTokenizer;
  std::string_view TokenBytes(TokenId id) const override {
    ++spelled;
    return FakeTokenizer::TokenBytes(id);
  }
  mutable int64_t spelled = 0;
};

// A body has room for millions of ids, which are refused for their number, or cut.
TEST_F(PromptEncoderTest, SpellsNoMoreOfAPromptThanTheContextHolds) {
  constexpr int32_t kContext = 1000;
  const SpellingTokenizer tokenizer(
      {"<think>", "</think>", "a", "<", "/", "t", "h", "i", "n", "k", ">", "</s>"});
  const PromptEncoder encoder(&tokenizer, nullptr,
                              {.max_context_tokens = kContext, .kv_capacity_tokens = kContext});
  EncodedRequest encoded;
  const auto tokenize = [&](size_t tag_at, std::optional<int32_t> kept) {
    std::vector<TokenId> ids(size_t{10} * kContext, T(2));
    ids[tag_at] = T(0);
    encoded.request.prompt = TokenPrompt{.ids = std::move(ids)};
    encoded.request.keep_prompt_tokens = kept;
    encoded.request.sampling.thinking_budget_tokens = 5;
    tokenizer.spelled = 0;
    const absl::Status status = encoder.Tokenize(std::nullopt, &encoded);
    EXPECT_LE(tokenizer.spelled, kContext);
    return status;
  };
  EXPECT_THAT(std::string(tokenize(0, std::nullopt).message()),
              ::testing::HasSubstr("the prompt has 10000 tokens: the prompt is too long"));
  // The thought goes on where its tag is cut off.
  EXPECT_EQ(tokenize(9 * kContext, 3), absl::OkStatus());
  EXPECT_EQ(encoded.request.sampling.thinking_limit->start, ReasoningStart::kAmid);
  EXPECT_EQ(tokenize(9 * kContext - 1, 3), absl::OkStatus());
  EXPECT_EQ(encoded.request.sampling.thinking_limit->start, ReasoningStart::kBefore);
}

TEST_F(PromptEncoderTest, RefusesAThinkingBudgetWhereNoTokenSpellsTheTag) {
  Request request;
  request.prompt = TextPrompt{.text = "a"};
  request.sampling.thinking_budget_tokens = 7;
  Encode(request);
  EXPECT_EQ(status_,
            absl::InvalidArgumentError(
                "thinking_token_budget is 7, must be absent: the model's vocabulary has no "
                "tokens for </think>"));
}

TEST_F(PromptEncoderTest, BansBadWordsAloneAndBehindASpace) {
  Request request;
  request.prompt = TextPrompt{.text = "a"};
  request.sampling.bad_words = {" ab", "c", "  "};
  const auto banned = Encode(request).request.sampling.banned_sequences;
  const TokenId space = T(' ' % 24);
  EXPECT_THAT(banned, ElementsAre(ElementsAre(T('a' % 24), T('b' % 24)),
                                  ElementsAre(space, T('a' % 24), T('b' % 24)),
                                  ElementsAre(T('c' % 24)), ElementsAre(space, T('c' % 24))));
}

}  // namespace
}  // namespace refrain::engine
