#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/admission_ledger.h"
#include "engine/encode_pool.h"
#include "engine/engine_loop.h"
#include "engine/engine_parts.h"
#include "engine/prompt_encoder.h"
#include "engine/request_checks.h"
#include "engine/request_queue.h"
#include "engine/turn_memory.h"

namespace refrain::engine {
namespace {

LoopOptions LoopOptionsOf(const EngineOptions& options, const EngineParts& parts) {
  return {.scheduler = {.max_sequences = options.max_sequences,
                        .step_token_budget = options.step_token_budget,
                        .chunk_tokens = parts.cache->options().chunk_tokens,
                        .policy = options.policy},
          .window_tokens = parts.window_tokens,
          .isolate_tenants = options.kv_cache.isolation == "api_key",
          .planner = parts.planner};
}

// Ids of earlier answers serve the prefix cache. Under `reproducible` a request's ids are those of
// its text, whatever was asked before.
bool RemembersTurns(const EngineOptions& options) {
  return options.kv_cache.prefix_cache && !options.reproducible;
}

// Engine = admission -> encode pool -> queue -> engine thread.
class LocalEngine : public Engine {
 public:
  LocalEngine(EngineParts parts, const EngineOptions& options)
      : parts_(std::move(parts)),
        options_(options),
        ledger_(std::make_shared<AdmissionLedger>(options.limits.queued_requests,
                                                  options.limits.queued_tokens)),
        queue_(std::make_shared<RequestQueue>()),
        loop_({.runner = parts_.runner.get(),
               .cache = parts_.cache.get(),
               .tokenizer = parts_.tokenizer.get(),
               .queue = queue_.get(),
               .ledger = ledger_.get(),
               .clock = parts_.clock.get(),
               .turns = &turns_,
               .observer = options.observer},
              LoopOptionsOf(options, parts_)),
        encoder_(parts_.tokenizer.get(), parts_.chat_template.get(),
                 {.max_context_tokens = parts_.model.max_context_tokens,
                  .kv_capacity_tokens = parts_.cache->stats().capacity_tokens()},
                 RemembersTurns(options) ? &turns_ : nullptr),
        pool_(
            &encoder_, parts_.clock.get(), options.encode_threads,
            [queue = queue_](std::unique_ptr<EncodedRequest> request) {
              queue->Push(std::move(request));
            },
            [this] { return loop_.stats().running_sequences > 0; }),
        thread_([this] { loop_.Run(); }) {}

  ~LocalEngine() override {
    ledger_->Close(absl::UnavailableError("the engine has stopped"));
    pool_.Stop();
    queue_->Close();
    thread_.join();
  }

  absl::StatusOr<std::shared_ptr<TokenStream>> Submit(Request request) override;

  const ModelInfo& model() const override { return parts_.model; }
  const Tokenizer& tokenizer() const override { return *parts_.tokenizer; }
  const ChatTemplate* chat_template() const override { return parts_.chat_template.get(); }
  EngineStats stats() const override { return loop_.stats(); }
  absl::StatusOr<CacheView> DescribeCache(const CacheViewLimits& limits) override;
  absl::Status health() const override { return loop_.health(); }
  bool Drain(std::chrono::steady_clock::time_point deadline) override {
    ledger_->Close(absl::UnavailableError("the engine is draining: it takes no new requests"));
    return ledger_->WaitUntilEmpty(deadline);
  }

 private:
  EngineParts parts_;
  const EngineOptions options_;
  std::shared_ptr<AdmissionLedger> ledger_;
  std::shared_ptr<RequestQueue> queue_;  // shared: a consumer may cancel after the engine is gone
  TurnMemory turns_;
  EngineLoop loop_;
  PromptEncoder encoder_;
  EncodePool pool_;
  std::atomic<uint64_t> next_number_{1};
  std::thread thread_;
};

absl::StatusOr<std::shared_ptr<TokenStream>> LocalEngine::Submit(Request request) {
  absl::Status status =
      CheckRequest(request, {.max_choices = options_.limits.n,
                             .max_beams = options_.max_sequences,
                             .vocab_size = static_cast<int64_t>(parts_.tokenizer->vocab_size())});
  if (!status.ok()) return status;
  absl::StatusOr<AdmissionTicket> ticket = ledger_->Enter();
  if (!ticket.ok()) return ticket.status();

  auto encoded = std::make_unique<EncodedRequest>();
  encoded->number = next_number_.fetch_add(1, std::memory_order_relaxed);
  encoded->ticket = *std::move(ticket);
  encoded->submitted = parts_.clock->Now();
  encoded->stream = std::make_shared<TokenStream>();
  encoded->stream->SetOnCancel(
      [queue = queue_, number = encoded->number] { queue->PostCancel(number); });
  double timeout_s = options_.limits.request_timeout_s;
  if (request.timeout_s.has_value() && (timeout_s <= 0 || *request.timeout_s < timeout_s)) {
    timeout_s = *request.timeout_s;
  }
  // Longer than a year is none: time points do not reach far beyond.
  if (timeout_s > 0 && timeout_s < 365.0 * 24 * 3600) {
    encoded->timeout_s = timeout_s;
    encoded->deadline =
        parts_.clock->Now() + std::chrono::duration_cast<Clock::TimePoint::duration>(
                                  std::chrono::duration<double>(timeout_s));
  }
  encoded->request = std::move(request);
  std::shared_ptr<TokenStream> handle = ConsumerHandle(encoded->stream);
  pool_.Push(std::move(encoded));
  return handle;
}

absl::StatusOr<CacheView> LocalEngine::DescribeCache(const CacheViewLimits& limits) {
  auto inspection = std::make_unique<CacheInspection>();
  inspection->limits = limits;
  std::future<absl::StatusOr<CacheView>> answer = inspection->answer.get_future();
  queue_->Ask(std::move(inspection));
  return answer.get();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> MakeEngine(EngineParts parts,
                                                   const EngineOptions& options) {
  const auto require = [](bool holds, const char* name, int64_t value, auto... limit) {
    return holds ? absl::OkStatus()
                 : absl::InvalidArgumentError(
                       absl::StrCat(name, " is ", value, ", must be ", limit...));
  };
  const int32_t slots = parts.cache->options().max_slots;
  for (const absl::Status& status : {
           require(options.max_sequences >= 1 && options.max_sequences <= slots,
                   "engine.max_sequences", options.max_sequences, "from 1 to ", slots),
           require(options.step_token_budget >= options.max_sequences, "engine.step_token_budget",
                   options.step_token_budget, "at least engine.max_sequences, which is ",
                   options.max_sequences),
           require(options.encode_threads >= 1 && options.encode_threads <= 256,
                   "server.encode_threads", options.encode_threads, "from 1 to 256"),
           require(options.limits.queued_requests >= 1, "limits.queued_requests",
                   options.limits.queued_requests, "at least 1"),
           require(options.limits.n >= 1, "limits.n", options.limits.n, "at least 1"),
           require(parts.model.max_context_tokens >= 1, "engine.max_context_tokens",
                   parts.model.max_context_tokens, "at least 1"),
       }) {
    if (!status.ok()) return status;
  }
  if (parts.clock == nullptr) parts.clock = std::make_unique<SteadyClock>();
  return std::make_unique<LocalEngine>(std::move(parts), options);
}

}  // namespace refrain::engine
