#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/pages_ahead.h"
#include "engine/text/chat_template.h"
#include "tests/support/eventually.h"
#include "tests/support/loop_harness.h"

namespace refrain::engine {
namespace {

using ::refrain::testing::Eventually;
using ::refrain::testing::FakeChunkMover;
using ::refrain::testing::FakeModelRunner;
using ::refrain::testing::FakeTokenizer;
using ::refrain::testing::LetterVocabulary;
using ::refrain::testing::ReadInto;
using ::refrain::testing::RequestOutput;
using ::refrain::testing::TokenRequest;
using ::testing::HasSubstr;

constexpr int32_t kChunks = 64;
constexpr int32_t kVocabSize = 32;  // of the model, which has rows behind the tokenizer's tokens

// A whole engine over fakes, with its threads.
struct Fixture {
  explicit Fixture(int max_in_flight = 2,
                   const EngineOptions& options = {.max_sequences = 8, .step_token_budget = 32},
                   std::unique_ptr<PagesAhead> pages_ahead = nullptr) {
    auto memory = std::make_shared<FakeChunkMover>(kChunks, 16);
    EngineParts parts;
    parts.foundation = memory;
    parts.model.max_context_tokens = 512;
    parts.model.vocab_size = kVocabSize;
    auto owned_tokenizer = std::make_unique<FakeTokenizer>(LetterVocabulary());
    tokenizer = owned_tokenizer.get();
    parts.tokenizer = std::move(owned_tokenizer);
    parts.chat_template =
        *ChatTemplate::Create("{% for said in messages %}{{ said.content }}{% endfor %}", "", "");
    auto owned_runner = std::make_unique<FakeModelRunner>(memory.get(), 25, max_in_flight);
    runner = owned_runner.get();
    parts.runner = std::move(owned_runner);
    parts.cache = *kvcache::CacheManager::Create({kChunks, 16, 8}, memory.get());
    parts.pages_ahead = std::move(pages_ahead);
    auto made = MakeEngine(std::move(parts), options);
    status = made.status();
    if (made.ok()) engine = *std::move(made);
  }

  RequestOutput Wait(const std::shared_ptr<TokenStream>& stream) {
    RequestOutput output;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!output.finished && stream->WaitUntil(deadline)) {
      ReadInto(*stream, *tokenizer, &output);
    }
    EXPECT_TRUE(output.finished);
    return output;
  }

  FakeTokenizer* tokenizer = nullptr;
  FakeModelRunner* runner = nullptr;
  absl::Status status;
  std::unique_ptr<Engine> engine;
};

TEST(EngineTest, TakesEveryIdThatTheModelHas) {
  Fixture f;
  ASSERT_LT(f.tokenizer->vocab_size(), static_cast<size_t>(kVocabSize));
  const TokenId last{kVocabSize - 1};
  Request request = TokenRequest({1, kVocabSize - 1}, 3);
  request.sampling.logit_bias = {{last, 1.0f}};
  request.stop.stop_token_ids = {last};
  const auto stream = f.engine->Submit(request);
  ASSERT_TRUE(stream.ok()) << stream.status();
  EXPECT_EQ(f.Wait(*stream).status, absl::OkStatus());
  request.stop.stop_token_ids = {TokenId{kVocabSize}};
  EXPECT_EQ(f.engine->Submit(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EngineTest, AnswersTextPrompts) {
  Fixture f;
  ASSERT_EQ(f.status, absl::OkStatus());
  Request request = TokenRequest({}, 10);
  request.prompt = TextPrompt{.text = "hello"};
  const auto stream = f.engine->Submit(request);
  ASSERT_TRUE(stream.ok());
  const RequestOutput output = f.Wait(*stream);
  EXPECT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(output.choices.at(0).tokens.size(), 10u);
  EXPECT_EQ(output.usage.prompt_tokens, 5);
  EXPECT_EQ(f.engine->health(), absl::OkStatus());
}

TEST(EngineTest, TellsHowLongWhatIsThereTakes) {
  Fixture f;
  double with_one_s = 0;
  f.tokenizer->before_encode = [&](std::string_view) {
    with_one_s = f.engine->stats().until_idle_s;
  };
  Request request = TokenRequest({}, 1);
  request.prompt = TextPrompt{.text = "hello"};
  const auto stream = f.engine->Submit(request);
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(f.Wait(*stream).status, absl::OkStatus());
  EXPECT_GT(with_one_s, 0);
  ASSERT_TRUE(f.engine->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  EXPECT_EQ(f.engine->stats().until_idle_s, 0);
}

TEST(EngineTest, CountsAsQueuedWhatIsToRunAndNoTextThatIsTokenizedAlone) {
  Fixture f;
  std::vector<int32_t> queued;  // seen by the encoder, one text after the other
  f.tokenizer->before_encode = [&](std::string_view) {
    queued.push_back(f.engine->stats().queued_requests);
  };
  const auto tokens = f.engine->Tokenize({.text = "hello"}, "a", std::nullopt, std::nullopt);
  ASSERT_TRUE(tokens.ok());
  ASSERT_TRUE((*tokens)->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  Request request = TokenRequest({}, 1);
  request.prompt = TextPrompt{.text = "hello"};
  const auto stream = f.engine->Submit(request);
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(f.Wait(*stream).status, absl::OkStatus());
  EXPECT_EQ(queued, (std::vector<int32_t>{0, 1}));
}

// What it has waited for before the engine got it is a part of its time.
TEST(EngineTest, ARequestsTimeRunsSinceItArrived) {
  Fixture f;
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [arrived, code] :
       {std::pair(now - std::chrono::hours(2), absl::StatusCode::kDeadlineExceeded),
        std::pair(now - std::chrono::minutes(10), absl::StatusCode::kOk)}) {
    Request request = TokenRequest({1}, 1);
    request.timeout_s = 3600;
    request.arrived = arrived;
    const auto stream = f.engine->Submit(request);
    ASSERT_TRUE(stream.ok());
    EXPECT_EQ(f.Wait(*stream).status.code(), code);
    const auto tokens = f.engine->Tokenize({.text = "hello"}, "", 3600, arrived);
    ASSERT_TRUE(tokens.ok());
    EXPECT_EQ(f.Wait(*tokens).status.code(), code);
  }
}

TEST(EngineTest, RefusesOptionsThatCannotWork) {
  EXPECT_THAT(Fixture(1, {.max_sequences = 9, .step_token_budget = 32}).status.message(),
              HasSubstr("engine.max_sequences is 9, must be from 1 to 8"));
  EXPECT_THAT(Fixture(1, {.max_sequences = 8, .step_token_budget = 7}).status.message(),
              HasSubstr("engine.step_token_budget is 7"));
}

TEST(EngineTest, RefusesBadNumbersAtOnceAndBadPromptsInTheStream) {
  Fixture f;
  Request bad = TokenRequest({1}, 1);
  bad.n = 1000;
  EXPECT_EQ(f.engine->Submit(bad).status().code(), absl::StatusCode::kInvalidArgument);
  const auto stream = f.engine->Submit(TokenRequest(std::vector<int32_t>(600, 1), 1));
  ASSERT_TRUE(stream.ok());
  EXPECT_THAT(f.Wait(*stream).status.message(),
              HasSubstr("length is 512 tokens. However, the prompt has 600 tokens"));
}

// Clients on several threads submit, read, cancel; then the engine drains.
TEST(EngineTest, ManyClientsAtOnceLeaveNothingBehind) {
  for (const int in_flight : {1, 2}) {
    Fixture f(in_flight);
    std::vector<std::thread> clients;
    for (int32_t c = 0; c < 6; ++c) {
      clients.emplace_back([&f, c] {
        for (int32_t i = 0; i < 25; ++i) {
          Request request = TokenRequest(std::vector<int32_t>(static_cast<size_t>(5 + i), c), 12);
          request.n = 1 + i % 3;
          auto stream = f.engine->Submit(request);
          ASSERT_TRUE(stream.ok());
          if (i % 5 == 1) continue;  // gone at once
          if (i % 5 == 2) {
            (*stream)->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60));
            (*stream)->Cancel();
          }
          const RequestOutput output = f.Wait(*stream);
          if (i % 5 != 2) {
            EXPECT_EQ(output.choices.at(0).tokens.size(), 12u);
          }
        }
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_TRUE(f.engine->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
    EXPECT_EQ(f.engine->Submit(TokenRequest({1}, 1)).status().code(),
              absl::StatusCode::kUnavailable);
    // The last request leaves the ledger just before the turn's figures are published.
    EXPECT_TRUE(Eventually([&] { return f.engine->stats().kv_used_chunks == 0; }));
    const EngineStats stats = f.engine->stats();
    EXPECT_EQ(stats.kv_free_chunks + stats.kv_cached_chunks, kChunks);
    EXPECT_EQ(stats.running_sequences, 0);
    EXPECT_EQ(stats.queued_requests, 0);
    EXPECT_TRUE(f.runner->errors().empty());
  }
}

TEST(EngineTest, DrainWaitsForRunningRequestsUntilTheDeadline) {
  std::atomic<bool> go = false;
  Fixture f;
  f.runner->before_step = [&](const StepBatch&) { go.wait(false); };
  const auto stream = f.engine->Submit(TokenRequest({1, 2, 3}, 100));
  ASSERT_TRUE(stream.ok());
  EXPECT_FALSE(f.engine->Drain(std::chrono::steady_clock::now() + std::chrono::milliseconds(1)));
  go = true;
  go.notify_all();
  EXPECT_TRUE(f.engine->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  EXPECT_EQ(f.Wait(*stream).choices.at(0).tokens.size(), 100u);
}

// Scenario: three keys are removed while another's request is in a long step, and requests of two
// of them wait to run.
TEST(EngineTest, EndsWhatWaitsOfAllTenantsAfterOneWait) {
  std::atomic<bool> in_step = false, go = false;
  Fixture f(1, {.max_sequences = 1, .step_token_budget = 32});
  f.runner->before_step = [&](const StepBatch&) {
    in_step = true;
    go.wait(false);
  };
  const auto submit = [&](const char* tenant) {
    Request request = TokenRequest({1, 2, 3}, 5);
    request.tenant = tenant;
    return *f.engine->Submit(request);
  };
  const auto runs = submit("stays");
  ASSERT_TRUE(Eventually([&] { return in_step.load(); }));
  const auto first = submit("a"), second = submit("b");
  const absl::Status reason = absl::UnauthenticatedError("removed");
  const std::vector<std::string> names = {"a", "b", "c"};
  const auto limit = std::chrono::milliseconds(200);
  const auto begin = std::chrono::steady_clock::now();
  const WaitingEnded ended = f.engine->EndWaiting(names, reason, begin + limit);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended.status)) << ended.status;
  EXPECT_LE(ended.requests, 2) << "those that had not been encoded yet";
  const auto again = submit("b");  // the key is there again
  go = true;
  go.notify_all();
  for (const auto& stream : {first, second}) EXPECT_EQ(f.Wait(stream).status, reason);
  for (const auto& stream : {runs, again}) {
    EXPECT_EQ(f.Wait(stream).choices.at(0).tokens.size(), 5u);
  }
  const WaitingEnded none =
      f.engine->EndWaiting(names, reason, std::chrono::steady_clock::now() + std::chrono::hours(1));
  EXPECT_EQ(none.status, absl::OkStatus());
  EXPECT_EQ(none.requests, 0);
}

// Scenario: the only thread that encodes is in the text of one tenant, another one's waits for it.
TEST(EngineTest, TellsWhatEndedEvenWhereTheEngineThreadIsNotWaitedFor) {
  std::atomic<bool> in_step = false, in_text = false, go = false;
  Fixture f(1, {.max_sequences = 1, .step_token_budget = 32, .encode_threads = 1});
  f.runner->before_step = [&](const StepBatch&) {
    in_step = true;
    go.wait(false);
  };
  f.tokenizer->before_encode = [&](std::string_view) {
    in_text = true;
    go.wait(false);
  };
  const auto runs = f.engine->Submit(TokenRequest({1, 2, 3}, 5));
  ASSERT_TRUE(Eventually([&] { return in_step.load(); }));
  Request text = TokenRequest({}, 5);
  text.prompt = TextPrompt{.text = "abc"};
  const auto in_work = f.engine->Submit(text);
  ASSERT_TRUE(Eventually([&] { return in_text.load(); }));
  text.tenant = "a";
  const auto waits = f.engine->Submit(text);
  const absl::Status reason = absl::UnauthenticatedError("removed");
  const WaitingEnded ended =
      f.engine->EndWaiting(std::vector<std::string>{"a"}, reason, std::chrono::steady_clock::now());
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended.status)) << ended.status;
  EXPECT_EQ(ended.requests, 1);
  EXPECT_EQ(f.Wait(*waits).status, reason);
  go = true;
  go.notify_all();
  for (const auto& stream : {*runs, *in_work}) EXPECT_EQ(f.Wait(stream).status, absl::OkStatus());
}

// Chunks of 1 MiB, 64 of 64 MiB are the bound; a request takes 4, which it need not touch. While it
// runs, its next chunk has been touched, and so nothing is.
TEST(EngineTest, TheIdleEngineTouchesMemoryAhead) {
  std::atomic<size_t> end = 0;
  std::atomic<bool> busy = false;
  auto pages = std::make_unique<PagesAhead>(
      PagesAhead::Pool{.chunk_bytes = 1 << 20, .chunk_tokens = 16, .num_chunks = 1000},
      [&](size_t, size_t piece_end) {
        EXPECT_FALSE(busy);
        end = piece_end;
        return true;
      });
  Fixture f(1, {.max_sequences = 8, .step_token_budget = 32}, std::move(pages));
  const auto touched = [&](size_t bytes) { return Eventually([&] { return end == bytes; }); };
  EXPECT_TRUE(touched(64 << 20));
  f.runner->before_step = [&](const StepBatch&) {
    busy = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    busy = false;
  };
  const auto stream = f.engine->Submit(TokenRequest(std::vector<int32_t>(50, 3), 10));
  ASSERT_TRUE(stream.ok());
  f.Wait(*stream);
  EXPECT_TRUE(touched(68 << 20)) << end;
}

// Chunks of 16 MiB: an idle engine has four touched. A request that takes more of them has its next
// one touched meanwhile, of 8 pieces one a step.
TEST(EngineTest, TheRunningEngineTouchesItsNextChunkAPieceAStep) {
  std::atomic<int> pieces = 0;
  auto pages = std::make_unique<PagesAhead>(
      PagesAhead::Pool{.chunk_bytes = 16 << 20, .chunk_tokens = 16, .num_chunks = 1000},
      [&](size_t, size_t) {
        ++pieces;
        return true;
      });
  Fixture f(1, {.max_sequences = 8, .step_token_budget = 32}, std::move(pages));
  constexpr int kChunkPieces = 8;
  constexpr int kWhenIdle = 4 * kChunkPieces;
  const auto wait_for = [&](int count) {
    EXPECT_TRUE(Eventually([&] { return pieces >= count || HasFailure(); }));
  };
  wait_for(kWhenIdle);
  int in_steps = 0, touched = kWhenIdle;
  f.runner->before_step = [&](const StepBatch& batch) {
    const int chunks = batch.positions.back() / 16 + 1;
    touched = std::max(touched, chunks * kChunkPieces);  // by who writes to them
    if (touched < (chunks + 1) * kChunkPieces) {
      ++touched;
      ++in_steps;
    }
    wait_for(kWhenIdle + in_steps);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // in which no other may come
    EXPECT_EQ(pieces, kWhenIdle + in_steps);
  };
  const auto stream = f.engine->Submit(TokenRequest(std::vector<int32_t>(100, 3), 60));
  ASSERT_TRUE(stream.ok());
  f.Wait(*stream);
  // Chunks 5 to 10 were taken in 4 to 64 steps; a new one every 16, of which 8 touch it.
  EXPECT_GE(in_steps, 3 * kChunkPieces);
}

TEST(EngineTest, DestructionFinishesStreamsAsCancelled) {
  std::shared_ptr<TokenStream> stream;
  FakeTokenizer tokenizer{LetterVocabulary()};
  {
    Fixture f;
    // Eight seconds for all of them: it does not end by itself.
    f.runner->before_step = [](const StepBatch&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    stream = *f.engine->Submit(TokenRequest({1, 2, 3}, 400));
    ASSERT_TRUE(stream->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  }
  RequestOutput output;
  ReadInto(*stream, tokenizer, &output);
  EXPECT_TRUE(output.finished);
  EXPECT_EQ(output.status.code(), absl::StatusCode::kCancelled);
  stream->Cancel();  // the engine is gone: no harm
}

// --- what operators do with the cache ---

Request PromptOf(int32_t tokens, int32_t first) {
  Request request = TokenRequest(std::vector<int32_t>(static_cast<size_t>(tokens), 1), 0);
  std::get<TokenPrompt>(request.prompt).ids[0] = TokenId{first};
  return request;
}

TEST(EngineTest, PinnedPrefixesOutliveWhatIsDropped) {
  Fixture f;
  EXPECT_EQ(f.engine->PinPrefix(PromptOf(40, 2)).status().code(), absl::StatusCode::kNotFound);
  for (const int32_t first : {2, 3}) {
    ASSERT_EQ(f.Wait(*f.engine->Submit(PromptOf(40, first))).status, absl::OkStatus());
  }
  const auto pin = f.engine->PinPrefix(PromptOf(40, 2));
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ(pin->prompt_tokens, 40);
  EXPECT_EQ(pin->pinned_tokens, 32);
  const auto list = f.engine->PinnedPrefixes();
  ASSERT_EQ(list->pins.size(), 1u);
  EXPECT_EQ(list->pinned_chunks, 2);
  ASSERT_TRUE(f.engine->DropIdleCache().ok());
  EXPECT_EQ(f.Wait(*f.engine->Submit(PromptOf(40, 2))).usage.cached_tokens, 32);
  EXPECT_EQ(f.Wait(*f.engine->Submit(PromptOf(40, 3))).usage.cached_tokens, 0);
  EXPECT_EQ(f.engine->UnpinPrefix(pin->id), absl::OkStatus());
  EXPECT_EQ(f.engine->UnpinPrefix(pin->id).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(f.engine->PinnedPrefixes()->pinned_chunks, 0);
  EXPECT_EQ(*f.engine->DropPrefix(PromptOf(40, 2)), 3);
  EXPECT_EQ(f.Wait(*f.engine->Submit(PromptOf(40, 2))).usage.cached_tokens, 0);
}

// Scenario: one request runs all the while.
TEST(EngineTest, IdleCacheIsDroppedInPiecesBetweenWhichTheEngineGoesOn) {
  std::atomic<int> steps = 0;
  std::atomic<bool> slow = false;
  Fixture f(1);
  f.runner->before_step = [&](const StepBatch&) {
    ++steps;
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  for (const int32_t first : {2, 3, 4}) f.Wait(*f.engine->Submit(PromptOf(40, first)));
  const auto alone = f.Wait(*f.engine->Submit(TokenRequest({1, 2, 3}, 300))).choices.at(0).tokens;
  ASSERT_GT(*f.engine->DropIdleCache(), 9);
  for (const int32_t first : {2, 3, 4}) f.Wait(*f.engine->Submit(PromptOf(40, first)));
  slow = true;  // else it may have ended before the drop begins
  const auto stream = f.engine->Submit(TokenRequest({1, 2, 3}, 300));
  ASSERT_TRUE((*stream)->WaitUntil(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
  const int steps_before = steps;
  const absl::StatusOr<int32_t> dropped = f.engine->DropIdleCache();
  const int steps_after = steps;
  slow = false;
  EXPECT_EQ(f.Wait(*stream).choices.at(0).tokens, alone);
  EXPECT_EQ(*dropped, 9) << "three of each prompt that is idle";
  EXPECT_GT(steps_after, steps_before);
  EXPECT_LT(steps_after, 599) << "it had ended before";
}

// Scenario: the engine is in a step when it is to stop, behind which it looks at one piece.
TEST(EngineTest, ADropThatIsCutOffByTheEnginesEndSaysSo) {
  std::atomic<int> steps = 0;
  std::atomic<bool> goes_on = false;
  Fixture f(1);
  f.Wait(*f.engine->Submit(PromptOf(40, 2)));
  f.runner->before_step = [&](const StepBatch&) {
    ++steps;
    goes_on.wait(false);
  };
  const auto stream = f.engine->Submit(TokenRequest({1, 2, 3}, 300));
  // Between steps, and without any, it would look at one piece after the other.
  ASSERT_TRUE(Eventually([&] { return steps == 1; }));
  absl::StatusOr<int32_t> dropped = 0;
  std::thread dropping([&] { dropped = f.engine->DropIdleCache(); });
  // So that the first piece waits; a drop that comes too late for it ends in the same way.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  f.engine->Abandon();
  goes_on = true;
  goes_on.notify_all();
  dropping.join();
  ASSERT_FALSE(dropped.ok()) << *dropped;
  EXPECT_EQ(dropped.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(f.Wait(*stream).status.code(), absl::StatusCode::kCancelled);
}

TEST(EngineTest, ListsTheSessionsThatWereUsedLast) {
  Fixture f;
  for (const int32_t first : {2, 3, 4}) f.Wait(*f.engine->Submit(PromptOf(first * 10, first)));
  const auto list = f.engine->ListSessions(2);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->total_sessions, 3);
  ASSERT_EQ(list->sessions.size(), 2u);
  EXPECT_EQ(list->sessions[0].num_tokens, 40);
  EXPECT_EQ(list->sessions[1].num_tokens, 30);
}

TEST(EngineTest, PinsLeaveRoomForTheLongestRequest) {
  Fixture f;
  for (const int32_t first : {2, 3}) f.Wait(*f.engine->Submit(PromptOf(400, first)));
  const auto first = f.engine->PinPrefix(PromptOf(400, 2));
  ASSERT_TRUE(first.ok()) << first.status();
  // Sharing costs nothing.
  EXPECT_TRUE(f.engine->PinPrefix(PromptOf(400, 2)).ok());
  const auto second = f.engine->PinPrefix(PromptOf(400, 3));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr("unpinned"));
  Request longest = PromptOf(500, 4);
  longest.stop.max_tokens = 12;
  longest.stop.ignore_eos = true;
  EXPECT_EQ(f.Wait(*f.engine->Submit(longest)).usage.completion_tokens, 12);
}

// To warm it, as for one that is not cached, would not help.
TEST(EngineTest, APromptShorterThanAChunkIsNotPinnedForAReasonThatIsTold) {
  Fixture f;
  f.Wait(*f.engine->Submit(PromptOf(15, 2)));
  const absl::Status status = f.engine->PinPrefix(PromptOf(15, 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "the prompt's 15 tokens are less than a chunk of 16: only whole chunks are pinned");
}

TEST(EngineTest, PinsOfOneSaltDoNotServeAnother) {
  Fixture f;
  Request salted = PromptOf(40, 2);
  salted.cache_salt = "s";
  f.Wait(*f.engine->Submit(salted));
  EXPECT_EQ(f.engine->PinPrefix(PromptOf(40, 2)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(f.engine->PinPrefix(salted)->salted);
  EXPECT_EQ(*f.engine->DropPrefix(PromptOf(40, 2)), 0);
}

Request ChatOf(const std::vector<std::string>& contents, const std::string& tenant,
               int32_t max_tokens) {
  std::vector<jinja::Value> messages;
  for (const std::string& content : contents) {
    jinja::Map message;
    message.Set("role", jinja::Value::String(messages.size() % 2 == 0 ? "user" : "assistant"));
    message.Set("content", jinja::Value::String(content));
    messages.push_back(jinja::Value::MakeMap(std::move(message)));
  }
  Request request = TokenRequest({}, max_tokens);
  ChatPrompt prompt;
  prompt.input.messages = jinja::Value::MakeList(std::move(messages));
  request.prompt = std::move(prompt);
  request.tenant = tenant;
  request.stop.ignore_eos = true;
  return request;
}

// Keys that share the cache share no ids: one would choose what another's conversation is encoded
// as. So the answer's part of the cache is found under the name of the key that it was given to.
TEST(EngineTest, AnAnswerIsFoundUnderItsKeysNameAlsoWhereKeysShareTheCache) {
  Fixture f;
  const std::string question = "twentylettersarehere";
  const RequestOutput answered = f.Wait(*f.engine->Submit(ChatOf({question}, "a", 20)));
  const std::string& answer = answered.choices.at(0).text;
  ASSERT_NE(f.tokenizer->Encode(answer, {})->size(), 20u);
  const std::vector<std::string> next = {question, answer, "goon"};
  const auto cached = [&](const std::string& tenant) {
    return f.Wait(*f.engine->Submit(ChatOf(next, tenant, 0))).usage.cached_tokens;
  };
  EXPECT_EQ(*f.engine->DropPrefix(ChatOf(next, "", 0)), 0);
  EXPECT_EQ(cached("a"), 20 + 19) << "the question, and what was computed of the answer";
  EXPECT_EQ(cached("b"), 20);
  EXPECT_GT(*f.engine->DropPrefix(ChatOf(next, "a", 0)), 1);
  EXPECT_LT(cached("a"), 20 + 19);
}

TEST(EngineTest, AnIdleEngineBurnsNoProcessorTime) {
  Fixture f;
  f.Wait(*f.engine->Submit(TokenRequest({1}, 1)));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 0.03);
}

}  // namespace
}  // namespace refrain::engine
