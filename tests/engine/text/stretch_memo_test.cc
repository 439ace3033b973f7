#include "engine/text/stretch_memo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "engine/encode_pool.h"
#include "engine/text/create_tokenizer.h"
#include "tests/engine/text/text_test_data.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"
#include "tests/support/refused_memory.h"

namespace refrain::engine {
namespace {

using kvcache::TokenId;
using ::refrain::testing::Eventually;
using ::refrain::testing::RefuseEachAllocation;

std::string Text(size_t bytes, char first) {
  std::string text(bytes, first);
  for (size_t i = 0; i < bytes; i += 7) text[i] = ' ';
  return text;
}

// Whichever allocation is refused, also where another text has to go.
TEST(StretchMemoTest, WhatFindsNoMemoryIsNotKeptAndTakesNoRoom) {
  constexpr size_t kTexts = 40, kTextBytes = 2000;
  StretchMemo memo(20 * kTextBytes);
  size_t most_bytes = 0;
  for (size_t i = 0; i < kTexts; ++i) {
    const std::string text = Text(kTextBytes + i, 'a');
    const std::vector<TokenId> ids(i, TokenId{1});
    const auto refused = RefuseEachAllocation([&] { memo.Remember({"s", 0, text}, ids); });
    EXPECT_GE(refused, 3);
    ASSERT_NE(memo.Find({"s", 0, text}), nullptr) << i;
    EXPECT_EQ(*memo.Find({"s", 0, text}), ids);
    most_bytes = std::max(most_bytes, memo.num_bytes());
    ASSERT_LE(most_bytes, 20 * kTextBytes);
  }
  EXPECT_GT(most_bytes, 15 * kTextBytes);
}

TEST(StretchMemoTest, FindsTheSameTextInTheSameScopeAndPlaceOnly) {
  StretchMemo memo;
  const std::string text = Text(5000, 'a');
  const std::vector<TokenId> ids = {TokenId{1}, TokenId{2}};
  memo.Remember({"s", 0, text}, ids);
  ASSERT_NE(memo.Find({"s", 0, text}), nullptr);
  EXPECT_EQ(*memo.Find({"s", 0, text}), ids);
  EXPECT_EQ(memo.Find({"t", 0, text}), nullptr);
  EXPECT_EQ(memo.Find({"s", 1, text}), nullptr);
  EXPECT_EQ(memo.Find({"s", 0, text + "a"}), nullptr);
  EXPECT_EQ(memo.Find({"s", 0, std::string_view(text).substr(1)}), nullptr);
  memo.Remember({"s", 0, text}, {});
  EXPECT_TRUE(memo.Find({"s", 0, text})->empty());
}

TEST(StretchMemoTest, ForgetsWhatWasNotUsedForLongest) {
  StretchMemo memo(64 << 10);
  const auto text = [](int i) { return Text(4000, static_cast<char>('a' + i)); };
  for (int i = 0; i < 20; ++i) {
    memo.Remember({"", 0, text(i)}, std::vector<TokenId>(500));
    EXPECT_LE(memo.num_bytes(), size_t{64} << 10);
    EXPECT_NE(memo.Find({"", 0, text(0)}), nullptr) << i;  // used again and again
  }
  EXPECT_EQ(memo.Find({"", 0, text(1)}), nullptr);
  EXPECT_NE(memo.Find({"", 0, text(19)}), nullptr);
  const size_t before = memo.num_bytes();
  memo.Remember({"", 0, Text(9000, 'z')}, {});  // an eighth of it all
  memo.Remember({"", 0, Text(StretchMemo::kLeastBytes - 1, 'z')}, {});
  EXPECT_EQ(memo.num_bytes(), before);
}

// Messages of a conversation, long ones and short ones; special tokens between them.
std::string Conversation(int messages) {
  std::string text;
  for (int i = 0; i < messages; ++i) {
    text += "<|im_start|>user\nNumber " + std::to_string(i) + ": ";
    for (int word = 0; word < (i % 3 == 0 ? 3 : 900); ++word) {
      text += " w\u00f6rd" + std::to_string(word * (i + 7));
    }
    text += i % 5 == 0 ? " \xff\xfe<|im_end|>\n" : "<|im_end|>\n";
  }
  return text;
}

TEST(StretchMemoTest, IdsAreThoseOfTheTextItself) {
  const std::unique_ptr<Tokenizer> tokenizer = SmolLm2Tokenizer();
  StretchMemo memo;
  EncodeOptions plain{.parse_special = true};
  EncodeOptions with_memo = plain;
  with_memo.memo = &memo;
  with_memo.memo_scope = "s";
  for (const int messages : {4, 9, 20}) {
    const std::string text = Conversation(messages);
    const std::vector<int> expected = EncodeOrFail(*tokenizer, text, plain);
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(EncodeOrFail(*tokenizer, text, with_memo), expected);
      EXPECT_LT(tokenizer->BytesToEncode(text, with_memo), text.size() / 20);
    }
    EXPECT_GT(tokenizer->BytesToEncode(text, plain), text.size() * 9 / 10);
    // The same text behind other tokens, without special ones, in part.
    for (const bool continues : {false, true}) {
      for (const bool parse_special : {false, true}) {
        plain.continues = with_memo.continues = continues;
        plain.parse_special = with_memo.parse_special = parse_special;
        const std::string part = text.substr(40);
        EXPECT_EQ(EncodeOrFail(*tokenizer, part, with_memo), EncodeOrFail(*tokenizer, part, plain));
      }
    }
    plain.continues = with_memo.continues = false;
    plain.parse_special = with_memo.parse_special = true;
  }
}

// It puts a space before a text, not before what goes on.
TEST(StretchMemoTest, APlaceIsNotTakenForAnother) {
  const auto tokenizer =
      CreateSentencePieceTokenizer(ReadTestData("llama2-tokenizer/tokenizer.model"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  StretchMemo memo;
  const std::string text = "Words" + Text(3000, 'b');
  for (int time = 0; time < 2; ++time) {
    for (const bool continues : {false, true}) {
      EncodeOptions options{.add_bos = false, .continues = continues};
      const std::vector<int> expected = EncodeOrFail(**tokenizer, text, options);
      options.memo = &memo;
      EXPECT_EQ(EncodeOrFail(**tokenizer, text, options), expected) << continues;
    }
  }
  EXPECT_NE(EncodeOrFail(**tokenizer, text, {.add_bos = false, .continues = true}),
            EncodeOrFail(**tokenizer, text, {.add_bos = false}));
}

class StopAtOnce : public EncodePace {
  void Checkpoint() override { Stop(); }
};

TEST(StretchMemoTest, WhatWasStoppedIsNotRemembered) {
  const std::unique_ptr<Tokenizer> tokenizer = SmolLm2Tokenizer();
  StretchMemo memo;
  StopAtOnce pace;
  const std::string text = Conversation(4);
  const auto stopped =
      tokenizer->Encode(text, {.parse_special = true, .pace = &pace, .memo = &memo});
  EXPECT_EQ(stopped.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(memo.num_bytes(), 0u);
}

// Beside running sequences a long text works in slices, with rests: a conversation that comes back
// does not, but for what is new in it.
TEST(StretchMemoTest, AConversationThatComesBackNeedsNoRests) {
  const std::unique_ptr<Tokenizer> tokenizer = SmolLm2Tokenizer();
  const PromptEncoder encoder(tokenizer.get(), nullptr,
                              {.max_context_tokens = 1 << 22, .kv_capacity_tokens = 1 << 22});
  testing::FakeClock clock;
  std::atomic<int> done = 0, slices = 0;
  std::vector<std::vector<TokenId>> prompts(4);
  EncodePool pool(
      &encoder, &clock, 1,
      [&](std::unique_ptr<EncodedRequest> request) {
        prompts[request->number] = request->prompt;
        ++done;
      },
      [&] { return ++slices, true; });
  const auto ledger = std::make_shared<AdmissionLedger>(100, 1 << 30);
  const auto run = [&](uint64_t number, const std::string& text, const std::string& salt) {
    auto request = std::make_unique<EncodedRequest>();
    request->number = number;
    request->ticket = *ledger->Enter("");
    request->stream = std::make_shared<TokenStream>();
    request->request.prompt = TextPrompt{.text = text};
    request->request.cache_salt = salt;
    const int before = done;
    slices = 0;
    pool.Push(std::move(request));
    EXPECT_TRUE(Eventually([&] { return done > before; }));
    return slices.load();
  };
  const std::string text = Conversation(40);
  ASSERT_GT(text.size(), 3 * EncodePool::kLongTextBytes);
  EXPECT_GT(run(0, text, ""), 10);
  EXPECT_EQ(run(1, Conversation(42), ""), 0);
  EXPECT_EQ(run(2, text, ""), 0);
  EXPECT_GT(run(3, text, "another"), 10);
  EXPECT_EQ(prompts[2], prompts[0]);
  EXPECT_EQ(prompts[3], prompts[0]);
}

}  // namespace
}  // namespace refrain::engine
