#include "tests/support/loop_harness.h"

#include <gtest/gtest.h>

#include <utility>

namespace refrain::testing {

using engine::Request;
using engine::TokenStream;

void ReadInto(TokenStream& stream, const FakeTokenizer& tokenizer, RequestOutput* output) {
  engine::StreamBatch batch = stream.Read();
  for (engine::TokenEvent& event : batch.tokens) {
    ChoiceOutput& choice = output->choices[event.choice];
    EXPECT_TRUE(choice.ends.empty()) << "a token after the choice's end";
    EXPECT_FALSE(output->finished);
    if (event.from_prompt) {
      EXPECT_TRUE(choice.tokens.empty()) << "a prompt token after a generated one";
      choice.prompt.push_back(std::move(event));
      continue;
    }
    choice.tokens.push_back(static_cast<int32_t>(event.token));
    const std::string_view bytes = tokenizer.TokenBytes(event.token);
    choice.text += bytes.substr(
        0, static_cast<size_t>(event.shown_bytes.value_or(static_cast<int32_t>(bytes.size()))));
    choice.events.push_back(std::move(event));
  }
  for (engine::ChoiceEnd& end : batch.ends) {
    EXPECT_TRUE(output->choices[end.choice].ends.empty()) << "a second end";
    output->choices[end.choice].ends.push_back(std::move(end));
  }
  output->finished = batch.finished;
  output->status = batch.status;
  output->usage = batch.usage;
}

std::vector<int32_t> Prompt(int32_t length, int32_t seed) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back((seed * 7 + i * i * 5 + i * seed) % 24);
  return ids;
}

Request TokenRequest(const std::vector<int32_t>& prompt, int32_t max_tokens) {
  Request request;
  engine::TokenPrompt tokens;
  for (const int32_t id : prompt) tokens.ids.push_back(kvcache::TokenId{id});
  request.prompt = std::move(tokens);
  request.sampling.temperature = 0;
  request.stop.max_tokens = max_tokens;
  request.stop.ignore_eos = true;
  return request;
}

LoopHarness::LoopHarness(const LoopOptions& o)
    : options(o),
      memory(o.num_chunks, o.chunk_tokens),
      runner(&memory, static_cast<int32_t>(o.vocabulary.size()), o.max_in_flight),
      cache(*kvcache::CacheManager::Create({.num_chunks = o.num_chunks,
                                            .chunk_tokens = o.chunk_tokens,
                                            .max_slots = o.max_sequences,
                                            .prefix_cache = o.prefix_cache,
                                            .eviction = o.eviction},
                                           &memory)),
      ledger(std::make_shared<engine::AdmissionLedger>(o.queued_requests, o.queued_tokens)),
      encoder(&tokenizer, nullptr,
              {.max_context_tokens = o.max_context_tokens,
               .kv_capacity_tokens = int64_t{o.num_chunks} * o.chunk_tokens},
              /*turns=*/nullptr, &constrainer),
      loop({.runner = &runner,
            .cache = cache.get(),
            .tokenizer = &tokenizer,
            .queue = queue.get(),
            .ledger = ledger.get(),
            .clock = &clock,
            .observer = o.observer},
           {.scheduler = {.max_sequences = o.max_sequences,
                          .step_token_budget = o.step_token_budget,
                          .chunk_tokens = o.chunk_tokens,
                          .policy = o.policy,
                          .ageing_steps = o.ageing_steps},
            .isolate_tenants = o.isolate_tenants,
            .stall_s = o.stall_s,
            .planner = o.planner}) {}

LoopHarness::~LoopHarness() { EXPECT_TRUE(runner.errors().empty()) << runner.errors().front(); }

std::shared_ptr<TokenStream> LoopHarness::Submit(Request request) {
  auto ticket = ledger->Enter(request.tenant);
  submit_status_ = ticket.status();
  if (!ticket.ok()) return nullptr;
  auto encoded = std::make_unique<engine::EncodedRequest>();
  encoded->number = next_number_++;
  encoded->ticket = *std::move(ticket);
  encoded->submitted = clock.Now();
  encoded->stream = std::make_shared<TokenStream>();
  encoded->stream->SetOnCancel(
      [queue = queue, number = encoded->number] { queue->PostCancel(number); });
  if (request.timeout_s.has_value()) {
    encoded->timeout_s = *request.timeout_s;
    encoded->deadline = clock.Now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::duration<double>(*request.timeout_s));
  }
  encoded->request = std::move(request);
  const auto text = encoder.Render(encoded.get());
  submit_status_ = text.status();
  if (submit_status_.ok()) submit_status_ = encoder.Tokenize(*text, encoded.get());
  if (submit_status_.ok()) {
    submit_status_ = encoded->ticket.SetTokens(static_cast<int64_t>(encoded->prompt.size()));
  }
  if (!submit_status_.ok()) return nullptr;
  auto handle = engine::ConsumerHandle(encoded->stream);
  queue->Push(std::move(encoded));
  return handle;
}

void LoopHarness::RunUntilIdle() {
  for (int turn = 0; turn < 200000; ++turn) {
    if (!loop.Turn()) return;
  }
  FAIL() << "the loop does not come to rest";
}

RequestOutput LoopHarness::Read(const std::shared_ptr<TokenStream>& stream) {
  RequestOutput output;
  ReadInto(*stream, tokenizer, &output);
  return output;
}

RequestOutput LoopHarness::Run(Request request) {
  const auto stream = Submit(std::move(request));
  EXPECT_EQ(submit_status(), absl::OkStatus());
  if (stream == nullptr) return {};
  RunUntilIdle();
  return Read(stream);
}

void LoopHarness::CheckIdle() {
  EXPECT_EQ(cache->CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(cache->stats().available_chunks(), options.num_chunks);
  EXPECT_EQ(loop.held_sequences(), 0u);
  EXPECT_EQ(loop.stats().waiting_sequences, 0);
  EXPECT_EQ(loop.stats().deferred_sequences, 0);
  EXPECT_EQ(loop.deadlines(), 0u);
  EXPECT_EQ(cache->stats().sequences, 0);
  EXPECT_EQ(ledger->queued_requests(), 0);
  EXPECT_TRUE(ledger->WaitUntilEmpty(std::chrono::steady_clock::now()));
}

}  // namespace refrain::testing
