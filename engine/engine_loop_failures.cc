#include <utility>

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

}  // namespace refrain::engine
