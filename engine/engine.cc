#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/admission_ledger.h"
#include "engine/encode_pool.h"
#include "engine/engine_loop.h"
#include "engine/engine_parts.h"
#include "engine/grammar/output_constrainer.h"
#include "engine/prefix_pins.h"
#include "engine/prompt_encoder.h"
#include "engine/request_checks.h"
#include "engine/request_queue.h"
#include "engine/turn_memory.h"
#include "kvcache/idle_sweep.h"
#include "kvcache/session_scan.h"

namespace refrain::engine {
namespace {

LoopOptions LoopOptionsOf(const EngineOptions& options, const EngineParts& parts) {
  return {.scheduler = {.max_sequences = options.max_sequences,
                        .step_token_budget = options.step_token_budget,
                        .chunk_tokens = parts.cache->options().chunk_tokens,
                        .policy = options.policy},
          .window_tokens = parts.window_tokens,
          .isolate_tenants = options.kv_cache.isolation == "api_key",
          .stall_s = options.stall_s,
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
        // One chunk more: a request may need a copy of a part-full one.
        pins_(parts_.model.max_context_tokens + parts_.cache->options().chunk_tokens),
        loop_({.runner = parts_.runner.get(),
               .cache = parts_.cache.get(),
               .tokenizer = parts_.tokenizer.get(),
               .queue = queue_.get(),
               .ledger = ledger_.get(),
               .clock = parts_.clock.get(),
               .turns = &turns_,
               .observer = options.observer,
               .pages_ahead = parts_.pages_ahead.get()},
              LoopOptionsOf(options, parts_)),
        constrainer_(parts_.tokenizer.get(), std::max(static_cast<size_t>(parts_.model.vocab_size),
                                                      parts_.tokenizer->vocab_size())),
        encoder_(parts_.tokenizer.get(), parts_.chat_template.get(),
                 {.max_context_tokens = parts_.model.max_context_tokens,
                  .kv_capacity_tokens = parts_.cache->stats().capacity_tokens(),
                  .vocab_size = parts_.model.vocab_size},
                 RemembersTurns(options) ? &turns_ : nullptr, &constrainer_),
        pool_(
            &encoder_, parts_.clock.get(), options.encode_threads,
            [queue = queue_](std::unique_ptr<EncodedRequest> request) {
              queue->Push(std::move(request));
            },
            [this] { return loop_.stats().running_sequences > 0; }),
        thread_([this] { loop_.Run(); }) {}

  ~LocalEngine() override {
    Abandon();
    pool_.Stop();
    thread_.join();
  }

  absl::StatusOr<std::shared_ptr<TokenStream>> Submit(Request request) override;
  absl::StatusOr<std::shared_ptr<TokenStream>> Tokenize(
      TextPrompt text, std::string tenant, std::optional<double> timeout_s,
      std::optional<Clock::TimePoint> arrived) override;

  const ModelInfo& model() const override { return parts_.model; }
  const Tokenizer& tokenizer() const override { return *parts_.tokenizer; }
  const ChatTemplate* chat_template() const override { return parts_.chat_template.get(); }
  EngineStats stats() const override {
    EngineStats stats = loop_.stats();
    stats.kv_chunk_bytes = parts_.kv_chunk_bytes;
    return stats;
  }
  absl::StatusOr<CacheView> DescribeCache(const CacheViewLimits& limits) override;
  absl::StatusOr<SessionList> ListSessions(int32_t max_sessions) override;
  absl::StatusOr<PinnedPrefix> PinPrefix(const Request& prompt) override;
  absl::Status UnpinPrefix(PinId pin) override;
  absl::StatusOr<PinList> PinnedPrefixes() override;
  absl::StatusOr<int32_t> DropPrefix(const Request& prompt) override;
  absl::StatusOr<int32_t> DropIdleCache() override;
  WaitingEnded EndWaiting(std::span<const std::string> tenants, const absl::Status& reason,
                          std::chrono::steady_clock::time_point deadline) override;
  absl::Status health() const override { return loop_.health(); }
  bool Drain(std::chrono::steady_clock::time_point deadline) override {
    ledger_->Close(absl::UnavailableError("the engine is draining: it takes no new requests"),
                   deadline);
    return ledger_->WaitUntilEmpty(deadline);
  }
  void Abandon() final {
    ledger_->Close(absl::UnavailableError("the engine has stopped"));
    parts_.runner->Abandon();
    queue_->Close();
  }

 private:
  // Numbered, with a stream and its deadline.
  std::unique_ptr<EncodedRequest> MakeRequest(AdmissionTicket ticket,
                                              std::optional<double> wanted_timeout_s,
                                              std::optional<Clock::TimePoint> arrived);
  // Waits until the engine thread has done it.
  template <typename Answer>
  absl::StatusOr<Answer> AskCache(
      std::function<absl::StatusOr<Answer>(kvcache::CacheManager*)> question);
  // The same for each step until one says that it was the last.
  absl::Status AskInSteps(const std::function<bool(kvcache::CacheManager*)>& step);
  absl::StatusOr<std::vector<TokenId>> Encode(const Request& prompt) const;
  kvcache::Namespace NamespaceOf(const Request& request) const;

  EngineParts parts_;
  const EngineOptions options_;
  std::shared_ptr<AdmissionLedger> ledger_;
  std::shared_ptr<RequestQueue> queue_;  // shared: a consumer may cancel after the engine is gone
  TurnMemory turns_;
  PrefixPins pins_;  // the engine thread's
  EngineLoop loop_;
  OutputConstrainer constrainer_;
  PromptEncoder encoder_;
  EncodePool pool_;
  std::atomic<uint64_t> next_number_{1};
  std::thread thread_;
};

absl::StatusOr<std::shared_ptr<TokenStream>> LocalEngine::Submit(Request request) {
  absl::Status status = CheckRequest(request, {.max_choices = options_.limits.n,
                                               .max_beams = options_.max_sequences,
                                               .vocab_size = parts_.model.vocab_size});
  if (!status.ok()) return status;
  absl::StatusOr<AdmissionTicket> ticket =
      ledger_->Enter(request.tenant, Errand::kRun, request.call);
  if (!ticket.ok()) return ticket.status();

  std::unique_ptr<EncodedRequest> encoded =
      MakeRequest(*std::move(ticket), request.timeout_s, request.arrived);
  encoded->stream->SetOnCancel(
      [queue = queue_, number = encoded->number] { queue->PostCancel(number); });
  encoded->request = std::move(request);
  std::shared_ptr<TokenStream> handle = ConsumerHandle(encoded->stream);
  pool_.Push(std::move(encoded));
  return handle;
}

absl::StatusOr<std::shared_ptr<TokenStream>> LocalEngine::Tokenize(
    TextPrompt text, std::string tenant, std::optional<double> timeout_s,
    std::optional<Clock::TimePoint> arrived) {
  absl::StatusOr<AdmissionTicket> ticket = ledger_->Enter(tenant, Errand::kTokenize);
  if (!ticket.ok()) return ticket.status();
  std::unique_ptr<EncodedRequest> encoded = MakeRequest(*std::move(ticket), timeout_s, arrived);
  encoded->only_tokenize = true;
  encoded->request.prompt = std::move(text);
  encoded->request.tenant = std::move(tenant);
  std::shared_ptr<TokenStream> handle = ConsumerHandle(encoded->stream);
  pool_.Push(std::move(encoded));
  return handle;
}

std::unique_ptr<EncodedRequest> LocalEngine::MakeRequest(AdmissionTicket ticket,
                                                         std::optional<double> wanted_timeout_s,
                                                         std::optional<Clock::TimePoint> arrived) {
  auto encoded = std::make_unique<EncodedRequest>();
  encoded->number = next_number_.fetch_add(1, std::memory_order_relaxed);
  encoded->ticket = std::move(ticket);
  encoded->submitted = parts_.clock->Now();
  encoded->stream = std::make_shared<TokenStream>();
  double timeout_s = options_.limits.request_timeout_s;
  if (wanted_timeout_s.has_value() && (timeout_s <= 0 || *wanted_timeout_s < timeout_s)) {
    timeout_s = *wanted_timeout_s;
  }
  // Longer than a year is none: time points do not reach far beyond.
  if (timeout_s > 0 && timeout_s < 365.0 * 24 * 3600) {
    encoded->timeout_s = timeout_s;
    encoded->deadline = arrived.value_or(*encoded->submitted) +
                        std::chrono::duration_cast<Clock::TimePoint::duration>(
                            std::chrono::duration<double>(timeout_s));
  }
  return encoded;
}

template <typename Answer>
absl::StatusOr<Answer> LocalEngine::AskCache(
    std::function<absl::StatusOr<Answer>(kvcache::CacheManager*)> question) {
  auto answer = std::make_shared<std::promise<absl::StatusOr<Answer>>>();
  std::future<absl::StatusOr<Answer>> answered = answer->get_future();
  queue_->Send([answer, question = std::move(question)](auto cache) {
    answer->set_value(cache.ok() ? question(*cache) : absl::StatusOr<Answer>(cache.status()));
  });
  return answered.get();
}

absl::Status LocalEngine::AskInSteps(const std::function<bool(kvcache::CacheManager*)>& step) {
  for (;;) {
    const absl::StatusOr<bool> goes_on = AskCache<bool>(step);
    if (!goes_on.ok() || !*goes_on) return goes_on.status();
  }
}

absl::StatusOr<std::vector<TokenId>> LocalEngine::Encode(const Request& prompt) const {
  EncodedRequest encoded;
  encoded.request = prompt;
  encoded.request.stop.max_tokens = 0;
  const absl::StatusOr<std::optional<PromptText>> text = encoder_.Render(&encoded);
  if (!text.ok()) return text.status();
  if (absl::Status status = encoder_.Tokenize(*text, &encoded); !status.ok()) return status;
  return std::move(encoded.prompt);
}

kvcache::Namespace LocalEngine::NamespaceOf(const Request& request) const {
  return {.tenant = LoopOptionsOf(options_, parts_).isolate_tenants ? request.tenant : "",
          .cache_salt = request.cache_salt};
}

absl::StatusOr<CacheView> LocalEngine::DescribeCache(const CacheViewLimits& limits) {
  return AskCache<CacheView>(
      [limits](kvcache::CacheManager* cache) { return cache->Describe(limits); });
}

absl::StatusOr<SessionList> LocalEngine::ListSessions(int32_t max_sessions) {
  kvcache::SessionScan scan(max_sessions);
  absl::Status status = AskInSteps([&scan](auto* cache) { return scan.FindSome(*cache); });
  if (!status.ok()) return status;
  scan.Choose();
  status = AskInSteps([&scan](auto* cache) { return scan.DescribeSome(*cache); });
  if (!status.ok()) return status;
  return scan.Take();
}

absl::StatusOr<PinnedPrefix> LocalEngine::PinPrefix(const Request& prompt) {
  absl::StatusOr<std::vector<TokenId>> ids = Encode(prompt);
  if (!ids.ok()) return ids.status();
  return AskCache<PinnedPrefix>([this, ids = *std::move(ids), name_space = NamespaceOf(prompt)](
                                    auto* cache) { return pins_.Pin(name_space, ids, cache); });
}

absl::Status LocalEngine::UnpinPrefix(PinId pin) {
  return AskCache<PinId>([this, pin](auto* cache) -> absl::StatusOr<PinId> {
           if (absl::Status status = pins_.Unpin(pin, cache); !status.ok()) return status;
           return pin;
         })
      .status();
}

absl::StatusOr<PinList> LocalEngine::PinnedPrefixes() {
  return AskCache<PinList>([this](auto*) { return pins_.List(); });
}

absl::StatusOr<int32_t> LocalEngine::DropPrefix(const Request& prompt) {
  absl::StatusOr<std::vector<TokenId>> ids = Encode(prompt);
  if (!ids.ok()) return ids.status();
  const kvcache::TokenSpan tokens{.ids = *ids, .positions = {}};
  const kvcache::Namespace name_space = NamespaceOf(prompt);
  absl::StatusOr<kvcache::IdleSweep> sweep = AskCache<kvcache::IdleSweep>([&](auto* cache) {
    return kvcache::IdleSweep(cache->tree(), cache->EndsOf(name_space, tokens));
  });
  if (!sweep.ok()) return sweep.status();
  const absl::Status status = AskInSteps([&](auto* cache) { return sweep->EvictSome(cache); });
  if (!status.ok()) return status;
  // What it is left with ends there or comes before, or has come meanwhile.
  const absl::StatusOr<int32_t> rest =
      AskCache<int32_t>([&](auto* cache) { return cache->Drop(name_space, tokens); });
  if (!rest.ok()) return rest.status();
  return sweep->evicted_chunks() + *rest;
}

absl::StatusOr<int32_t> LocalEngine::DropIdleCache() {
  kvcache::IdleSweep sweep;
  const absl::Status status = AskInSteps([&](auto* cache) { return sweep.EvictSome(cache); });
  if (!status.ok()) return status;
  return sweep.evicted_chunks();
}

WaitingEnded LocalEngine::EndWaiting(std::span<const std::string> tenants,
                                     const absl::Status& reason,
                                     std::chrono::steady_clock::time_point deadline) {
  // What is encoded meanwhile has a number below it, and ends in the pool or where it arrives.
  const uint64_t before = next_number_.load();
  std::unordered_set<std::string> names(tenants.begin(), tenants.end());
  WaitingEnded ended{.requests = pool_.EndWaiting(names, before, reason), .status = {}};
  auto told = std::make_shared<std::promise<absl::StatusOr<int32_t>>>();
  std::future<absl::StatusOr<int32_t>> answer = told->get_future();
  queue_->Post({.tenants = std::move(names),
                .before = before,
                .reason = reason,
                .done = [told](auto waiting) { told->set_value(std::move(waiting)); }});
  if (answer.wait_until(deadline) != std::future_status::ready) {
    ended.status = absl::DeadlineExceededError("the engine thread is in a long step");
    return ended;
  }
  const absl::StatusOr<int32_t> waiting = answer.get();
  ended.status = waiting.status();
  ended.requests += waiting.value_or(0);
  return ended;
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
