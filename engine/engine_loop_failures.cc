#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/engine_loop.h"

namespace refrain::engine {

absl::StatusOr<StepResult> EngineLoop::Collect(const LaunchedStep& step) {
  const Clock::TimePoint collect = parts_.clock->Now();
  absl::StatusOr<StepResult> result = parts_.runner->Collect(step.handle);
  collected_ = parts_.clock->Now();
  runner_seconds_ += std::chrono::duration<double>(collected_ - collect).count();
  observer_.Collected();
  for (const LaunchedStep::Logits& wanted : step.logits) {
    if (!wanted.prompt_index.has_value()) --wanted.sequence->pending_samples;
  }
  return result;
}

void EngineLoop::HandleFailure(const LaunchedStep& step, const absl::Status& status) {
  if (absl::IsResourceExhausted(status) && backoff_.Shrink(step.num_tokens())) {
    ++stats_.steps_without_memory_total;
    GiveUp(step);
  } else {
    for (const LaunchedStep::Work& work : step.work) {
      if (work.sequence->phase == SequencePhase::kEnded) continue;
      FinishRequest(work.sequence->request, status);
    }
  }
  if (absl::IsInternal(status)) Die(status);
  // Those launched behind it failed with it, and so would all behind them.
  while (!in_flight_.empty()) {
    const LaunchedStep next = std::move(in_flight_.front());
    in_flight_.pop_front();
    const absl::Status with_it = Collect(next).status();
    GiveUp(next);
    if (absl::IsInternal(with_it)) Die(with_it);
  }
}

void EngineLoop::GiveUp(const LaunchedStep& step) {
  for (const LaunchedStep::Logits& wanted : step.logits) {
    if (wanted.sequence->phase == SequencePhase::kEnded || !wanted.prompt_index.has_value()) {
      continue;
    }
    // The row before gives the log-probability of the token.
    wanted.sequence->request->ReturnPromptRow(*wanted.prompt_index - 1);
  }
  for (const LaunchedStep::Work& work : step.work) {
    if (work.sequence->phase == SequencePhase::kRunning) Preempt(work.sequence.get());
  }
}

// Nothing that was planned fits, and nothing in flight will change that. With less running the next
// plan may; a request that has the whole cache to itself, but for what is pinned, is refused.
void EngineLoop::BreakDeadlock() {
  if (snapshot_.running.size() > 1) {
    return Preempt(sequences_.at(FirstToGiveWay(snapshot_)).get());
  }
  SequenceId stuck{};
  if (!snapshot_.running.empty()) {
    stuck = snapshot_.running.front().sequence;
  } else {
    // All may fit but the one whose turn it is: what was found of it leaves it no room.
    const int32_t c = snapshot_.limits.chunk_tokens;
    const auto room_tokens = [this, c](const WaitingEntry& one) {
      if (one.held) return std::numeric_limits<int32_t>::max();
      return (snapshot_.free_chunks - one.idle_chunks) * c + (c - one.shared_tokens % c) % c;
    };
    const auto entry = std::min_element(snapshot_.waiting.begin(), snapshot_.waiting.end(),
                                        [&](const WaitingEntry& a, const WaitingEntry& b) {
                                          return room_tokens(a) < room_tokens(b);
                                        });
    // Who is held waits for a running sequence.
    if (entry == snapshot_.waiting.end() || entry->held) {
      return Die(absl::InternalError(absl::StrCat("all ", snapshot_.waiting.size(),
                                                  " waiting sequences wait for one another")));
    }
    stuck = entry->sequence;
  }
  SequenceState* const sequence = sequences_.at(stuck).get();
  // What it has itself it has not lost to the pins.
  const bool runs = sequence->phase == SequencePhase::kRunning;
  const int32_t chunks =
      parts_.cache->stats().available_chunks() + (runs ? parts_.cache->ExclusiveChunks(stuck) : 0);
  // No overload: it fits as little when it comes again, while what is pinned stays.
  FinishRequest(sequence->request,
                absl::FailedPreconditionError(absl::StrCat(
                    "the request's ", sequence->known_tokens(), " tokens do not fit into the ",
                    chunks, " chunks of ", snapshot_.limits.chunk_tokens,
                    " tokens of the KV cache that are not pinned")));
}

void EngineLoop::FinishAll(const absl::Status& status) {
  for (const auto& [number, request] : requests_) {
    if (!request->finished()) FinishRequest(request.get(), status);
  }
}

void EngineLoop::Die(absl::Status status) {
  parts_.ledger->Close(absl::UnavailableError("the engine is dead; the log says why"));
  FinishAll(status);
  MutexLock lock(shared_mutex_);
  if (death_.ok()) death_ = std::move(status);
}

absl::Status EngineLoop::DeathReason() const {
  MutexLock lock(shared_mutex_);
  return death_;
}

absl::Status EngineLoop::health() const {
  absl::Status death = DeathReason();
  return death.ok() ? watch_.status() : death;
}

}  // namespace refrain::engine
