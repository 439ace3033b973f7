#include "engine/answer_end.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "tests/support/fake_chunk_mover.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::engine {
namespace {

using kvcache::AnswerEnd;
using kvcache::NodeId;

// The last token is the end of generation.
const std::vector<std::string> kPieces = {
    "a", " ", "<tool", "_call>", "<|python_tag|>", "{", "\"n", "}", "\n", "<tool_call>", "end"};

std::vector<TokenId> Ids(const std::vector<std::string>& pieces) {
  std::vector<TokenId> ids;
  for (const std::string& piece : pieces) {
    for (size_t i = 0; i < kPieces.size(); ++i) {
      if (kPieces[i] == piece) ids.push_back(TokenId{static_cast<int32_t>(i)});
    }
  }
  return ids;
}

AnswerEnd EndOf(ToolFormat calls, const std::vector<std::string>& pieces,
                FinishReason reason = FinishReason::kStop) {
  return AnswerEndOf({.is_turn = true, .calls = calls}, reason, testing::FakeTokenizer(kPieces),
                     Ids(pieces));
}

TEST(AnswerEndTest, AnAnswerWithoutToolsIsRead) {
  EXPECT_EQ(EndOf(ToolFormat::kNone, {"a", "end"}), AnswerEnd::kBriefTurn);
  EXPECT_EQ(EndOf(ToolFormat::kNone, {"<tool_call>", "{", "}", "end"}), AnswerEnd::kBriefTurn)
      << "the request has no tools";
}

TEST(AnswerEndTest, ACallIsKnownByHowItBegins) {
  EXPECT_EQ(EndOf(ToolFormat::kHermes, {"a", "end"}), AnswerEnd::kBriefTurn);
  EXPECT_EQ(EndOf(ToolFormat::kHermes, {"{", "}", "end"}), AnswerEnd::kBriefTurn);
  EXPECT_EQ(EndOf(ToolFormat::kHermes, {"a", "<tool_call>", "{", "}", "end"}),
            AnswerEnd::kToolCalls);
  EXPECT_EQ(EndOf(ToolFormat::kHermes, {"a", "<tool", "_call>", "{"}), AnswerEnd::kToolCalls)
      << "in two tokens";

  EXPECT_EQ(EndOf(ToolFormat::kLlama3, {"{", "\"n", "}", "end"}), AnswerEnd::kToolCalls);
  EXPECT_EQ(EndOf(ToolFormat::kLlama3, {"<|python_tag|>", "\n", "{", "}"}), AnswerEnd::kToolCalls);
  EXPECT_EQ(EndOf(ToolFormat::kLlama3, {"\n", "<|python_tag|>", "{"}), AnswerEnd::kToolCalls);
  EXPECT_EQ(EndOf(ToolFormat::kLlama3, {"<|python_tag|>", "a", "{"}), AnswerEnd::kBriefTurn);
  EXPECT_EQ(EndOf(ToolFormat::kLlama3, {"a", " ", "{", "}", "end"}), AnswerEnd::kBriefTurn)
      << "a call is the whole answer";
  EXPECT_EQ(EndOf(ToolFormat::kLlama3, {"end"}), AnswerEnd::kBriefTurn);
  EXPECT_EQ(EndOf(ToolFormat::kLlama3, {}), AnswerEnd::kBriefTurn);
}

TEST(AnswerEndTest, ACallInsideOfAThoughtIsNone) {
  const std::vector<std::string> pieces = {"</think>", "<tool_call>", "{", " \n", "end"};
  const testing::FakeTokenizer tokenizer(pieces);
  const auto end = [&](ToolFormat calls, ReasoningStart start,
                       const std::vector<int32_t>& generated) {
    std::vector<TokenId> ids;
    for (const int32_t id : generated) ids.push_back(TokenId{id});
    return AnswerEndOf({.is_turn = true, .calls = calls, .reasoning = start}, FinishReason::kStop,
                       tokenizer, ids);
  };
  for (const auto& [calls, call] : {std::pair(ToolFormat::kHermes, 1), {ToolFormat::kLlama3, 2}}) {
    EXPECT_EQ(end(calls, ReasoningStart::kInside, {call}), AnswerEnd::kBriefTurn);
    EXPECT_EQ(end(calls, ReasoningStart::kInside, {call, 0, 4}), AnswerEnd::kBriefTurn);
    EXPECT_EQ(end(calls, ReasoningStart::kInside, {0, call}), AnswerEnd::kToolCalls);
    EXPECT_EQ(end(calls, ReasoningStart::kInside, {4, 0, 3, call}), AnswerEnd::kToolCalls);
    EXPECT_EQ(end(calls, ReasoningStart::kBehind, {call, 0}), AnswerEnd::kToolCalls);
  }
  std::vector<int32_t> long_thought(5000, 4);
  long_thought.insert(long_thought.end(), {0, 2});
  EXPECT_EQ(end(ToolFormat::kLlama3, ReasoningStart::kInside, long_thought), AnswerEnd::kToolCalls);
}

TEST(AnswerEndTest, ABriefAnswerIsOneOfItsOwn) {
  std::vector<std::string> pieces(static_cast<size_t>(kvcache::kBriefTurnTokens) - 1, "a");
  pieces.push_back("end");
  EXPECT_EQ(EndOf(ToolFormat::kNone, pieces), AnswerEnd::kBriefTurn);
  pieces.insert(pieces.begin(), "a");
  EXPECT_EQ(EndOf(ToolFormat::kNone, pieces), AnswerEnd::kTurn);
  EXPECT_EQ(EndOf(ToolFormat::kHermes, pieces), AnswerEnd::kTurn);
  pieces.insert(pieces.begin(), "<tool_call>");
  EXPECT_EQ(EndOf(ToolFormat::kHermes, pieces), AnswerEnd::kToolCalls);
}

TEST(AnswerEndTest, WhatNobodyCanTellIsOther) {
  EXPECT_EQ(EndOf(ToolFormat::kUnknown, {"a", "end"}), AnswerEnd::kOther);
  for (const FinishReason reason :
       {FinishReason::kLength, FinishReason::kCancelled, FinishReason::kError}) {
    EXPECT_EQ(EndOf(ToolFormat::kNone, {"a"}, reason), AnswerEnd::kOther);
    EXPECT_EQ(EndOf(ToolFormat::kHermes, {"<tool_call>"}, reason), AnswerEnd::kOther);
  }
  EXPECT_EQ(AnswerEndOf({}, FinishReason::kStop, testing::FakeTokenizer(kPieces), Ids({"a"})),
            AnswerEnd::kOther)
      << "no conversation";
}

// On the engine thread, where nobody may stay for long: an answer may be nothing but space.
TEST(AnswerEndTest, ACallIsNotLookedForBehindMuchSpace) {
  class Counting final : public testing::FakeTokenizer {
   public:
    using FakeTokenizer::FakeTokenizer;
    std::string_view TokenBytes(TokenId id) const override {
      ++looked_at;
      return FakeTokenizer::TokenBytes(id);
    }
    mutable int looked_at = 0;
  };
  const auto end_behind = [](const std::vector<std::string>& first, size_t spaces) {
    const Counting tokenizer(kPieces);
    std::vector<std::string> pieces = first;
    pieces.insert(pieces.end(), spaces, " ");
    pieces.insert(pieces.end(), {"{", "}", "end"});
    const AnswerEnd end = AnswerEndOf({.is_turn = true, .calls = ToolFormat::kLlama3},
                                      FinishReason::kStop, tokenizer, Ids(pieces));
    EXPECT_LE(tokenizer.looked_at, 2500);
    return end;
  };
  const std::vector<std::string> tag = {"\n", "<|python_tag|>"};
  EXPECT_EQ(end_behind({}, 1024), AnswerEnd::kToolCalls);
  EXPECT_EQ(end_behind({}, 1025), AnswerEnd::kTurn);
  EXPECT_EQ(end_behind(tag, 1024), AnswerEnd::kToolCalls);
  EXPECT_EQ(end_behind(tag, 1025), AnswerEnd::kTurn);
  EXPECT_EQ(end_behind({}, 100'000), AnswerEnd::kTurn);
  EXPECT_EQ(end_behind(tag, 100'000), AnswerEnd::kTurn);
}

// --- what the engine loop tells the cache ---

// Says the tokens of a script, and then its last one for ever. Another one comes second.
class ScriptedRunner final : public ModelRunner {
 public:
  explicit ScriptedRunner(std::vector<TokenId> script, int max_in_flight = 1)
      : script_(std::move(script)), max_in_flight_(max_in_flight) {}
  int max_in_flight() const override { return max_in_flight_; }
  StepHandle Launch(const StepBatch& batch) override {
    rows_.push_back(batch.logits.size());
    return StepHandle{++launched_};
  }
  absl::StatusOr<StepResult> Collect(StepHandle) override {
    StepResult result;
    result.rows.resize(rows_.front());
    rows_.pop_front();
    for (SampledToken& row : result.rows) {
      row.token = script_[next_];
      row.logprob = {row.token, -0.1f, 1};
      row.top = {{row.token, -0.1f, 1}, {Ids({"\n"})[0], -0.2f, 2}};
    }
    if (!result.rows.empty()) next_ = std::min(next_ + 1, script_.size() - 1);
    return result;
  }

 private:
  const std::vector<TokenId> script_;
  const int max_in_flight_;
  size_t next_ = 0;
  uint64_t launched_ = 0;
  std::deque<size_t> rows_;  // of each step in flight
};

// Evicts nothing; remembers what it was told of answers.
class Listener final : public kvcache::EvictionPolicy {
 public:
  explicit Listener(std::vector<AnswerEnd>* answers) : answers_(answers) {}
  void RequestJoined() override {}
  void Hit(NodeId) override {}
  void Inserted(NodeId, const kvcache::ChunkTraits&) override {}
  void Changed(NodeId, const kvcache::ChunkTraits&) override {}
  void Idle(NodeId) override {}
  void Busy(NodeId) override {}
  void Evicted(NodeId) override {}
  void Dropped(NodeId) override {}
  std::optional<NodeId> Victim() override { return std::nullopt; }
  void Leaving(NodeId, AnswerEnd answer) override { answers_->push_back(answer); }

 private:
  std::vector<AnswerEnd>* const answers_;
};

std::unique_ptr<EncodedRequest> Encoded(uint64_t number, AdmissionLedger* ledger,
                                        const AnswerForm& form, int32_t max_tokens) {
  auto encoded = std::make_unique<EncodedRequest>();
  encoded->number = number;
  encoded->ticket = *ledger->Enter("");
  encoded->stream = std::make_shared<TokenStream>();
  encoded->request.sampling.temperature = 0;
  encoded->request.stop.max_tokens = max_tokens;
  encoded->prompt = Ids({"a", "a", " ", "a", "\n", "a"});
  encoded->answers = form;
  encoded->stop_rules =
      std::make_shared<const StopRules>(encoded->request.stop, max_tokens, Ids({"end"}));
  return encoded;
}

// Two requests at most, over a cache that listens.
struct ListeningLoop {
  explicit ListeningLoop(const std::vector<std::string>& pieces, int max_in_flight = 1,
                         PlanFunction planner = &Plan)
      : runner(Ids(pieces), max_in_flight),
        loop({.runner = &runner,
              .cache = cache.get(),
              .tokenizer = &tokenizer,
              .queue = &queue,
              .ledger = ledger.get(),
              .clock = &clock},
             {.scheduler = {.max_sequences = 2, .step_token_budget = 64, .chunk_tokens = 4},
              .planner = std::move(planner)}) {}

  void RunUntilIdle() {
    while (loop.Turn()) continue;
    EXPECT_EQ(loop.stats().running_sequences, 0);
    EXPECT_EQ(cache->CheckInvariants(), absl::OkStatus());
  }
  // But for what leaves without saying how it ended.
  std::vector<AnswerEnd> Told() const {
    std::vector<AnswerEnd> told;
    std::ranges::copy_if(answers, std::back_inserter(told),
                         [](AnswerEnd answer) { return answer != AnswerEnd::kOther; });
    return told;
  }

  std::vector<AnswerEnd> answers;
  testing::FakeChunkMover memory{32, 4};
  const testing::FakeTokenizer tokenizer{kPieces};
  const std::unique_ptr<kvcache::CacheManager> cache =
      *kvcache::CacheManager::Create({.num_chunks = 32, .chunk_tokens = 4, .max_slots = 2}, &memory,
                                     std::make_unique<Listener>(&answers));
  const std::shared_ptr<AdmissionLedger> ledger =
      std::make_shared<AdmissionLedger>(10, int64_t{1} << 20);
  RequestQueue queue;
  testing::FakeClock clock;
  ScriptedRunner runner;
  EngineLoop loop;
};

// What the cache heard of a request that says `pieces`; `cancel`: after its first token.
std::vector<AnswerEnd> Heard(const AnswerForm& form, const std::vector<std::string>& pieces,
                             int32_t max_tokens, bool cancel = false) {
  ListeningLoop h(pieces);
  auto encoded = Encoded(1, h.ledger.get(), form, max_tokens);
  const auto stream = encoded->stream;
  h.queue.Push(std::move(encoded));
  if (cancel) {
    for (int i = 0; i < 3; ++i) h.loop.Turn();
    h.queue.PostCancel(1);
  }
  h.RunUntilIdle();
  return h.answers;
}

TEST(AnswerEndTest, TheCacheIsToldHowAnAnswerEnded) {
  const AnswerForm chat{.is_turn = true};
  const AnswerForm tools{.is_turn = true, .calls = ToolFormat::kHermes};
  using Ends = std::vector<AnswerEnd>;
  EXPECT_EQ(Heard(chat, {"a", "a", "end"}, 20), Ends{AnswerEnd::kBriefTurn});
  EXPECT_EQ(Heard(tools, {"a", "a", "end"}, 20), Ends{AnswerEnd::kBriefTurn});
  EXPECT_EQ(Heard(tools, {"a", "<tool_call>", "{", "}", "end"}, 20), Ends{AnswerEnd::kToolCalls});
  EXPECT_EQ(Heard({}, {"a", "a", "end"}, 20), Ends{AnswerEnd::kOther}) << "no conversation";
  EXPECT_EQ(Heard(chat, {"a", "a", "a"}, 3), Ends{AnswerEnd::kOther}) << "cut short";
  EXPECT_EQ(Heard(chat, {"a", "a"}, 20, /*cancel=*/true), Ends{AnswerEnd::kOther});
}

// Picked from two sequences, by beam search or from what was sampled.
TEST(AnswerEndTest, TheCacheIsToldHowThePickedAnswerEnded) {
  const AnswerForm tools{.is_turn = true, .calls = ToolFormat::kHermes};
  using Ends = std::vector<AnswerEnd>;
  const auto told = [&](bool beam, const std::vector<std::string>& pieces, int32_t max_tokens) {
    ListeningLoop h(pieces);
    auto encoded = Encoded(1, h.ledger.get(), tools, max_tokens);
    encoded->request.best_of = 2;
    if (beam) encoded->request.beam.emplace();
    const auto stream = encoded->stream;
    h.queue.Push(std::move(encoded));
    h.RunUntilIdle();
    return h.Told();
  };
  for (const bool beam : {false, true}) {
    EXPECT_EQ(told(beam, {"a", "<tool_call>", "{", "}", "end"}, 20), Ends{AnswerEnd::kToolCalls});
    EXPECT_EQ(told(beam, {"a", "{", "}", "end"}, 20), Ends{AnswerEnd::kBriefTurn});
    EXPECT_EQ(told(beam, {"a", "<tool_call>", "{", "}"}, 4), Ends()) << "cut short";
  }
  // The other beams go on behind the end of the best.
  EXPECT_EQ(told(true, {"a", "<tool_call>", "{", "}", "end", "a", "a", "a"}, 8),
            Ends{AnswerEnd::kToolCalls});
}

// Another request's step comes first, while the last token of the answer is on its way.
TEST(AnswerEndTest, TheCacheIsToldHowAnAnswerEndedThatWasPreempted) {
  int plans = 0;
  const auto preempt_in_third = [&](const SchedulerSnapshot& snapshot) {
    return ++plans == 3 ? StepPlan{.preempt = {SequenceId{1}}} : Plan(snapshot);
  };
  ListeningLoop h({"a", "end"}, /*max_in_flight=*/2, preempt_in_third);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const uint64_t number : {1, 2}) {
    auto encoded = Encoded(number, h.ledger.get(), {.is_turn = number == 1}, 20);
    if (number == 2) encoded->prompt = Ids({"}", "a"});  // held by nobody
    streams.push_back(encoded->stream);
    h.queue.Push(std::move(encoded));
  }
  h.RunUntilIdle();
  EXPECT_EQ(h.loop.stats().preemptions_total, 1);
  EXPECT_EQ(h.Told(), std::vector<AnswerEnd>{AnswerEnd::kBriefTurn});
}

}  // namespace
}  // namespace refrain::engine
