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

bool EngineLoop::RunSmaller(const LaunchedStep& step) {
  int32_t tokens = 0;
  for (const LaunchedStep::Work& work : step.work) tokens += work.num_tokens;
  if (!backoff_.Shrink(tokens)) return false;
  ++stats_.steps_without_memory_total;
  GiveUp(step);
  // They were launched behind it and fail with it.
  while (!in_flight_.empty()) {
    const LaunchedStep next = std::move(in_flight_.front());
    in_flight_.pop_front();
    const absl::Status status = Collect(next).status();
    GiveUp(next);
    if (absl::IsInternal(status)) Die(status);
  }
  return true;
}

void EngineLoop::GiveUp(const LaunchedStep& step) {
  for (const LaunchedStep::Logits& wanted : step.logits) {
    if (wanted.sequence->phase == SequencePhase::kEnded || !wanted.prompt_index.has_value()) {
      continue;
    }
    wanted.sequence->request->ReturnPromptRow(*wanted.prompt_index);
  }
  for (const LaunchedStep::Work& work : step.work) {
    if (work.sequence->phase == SequencePhase::kRunning) Preempt(work.sequence.get());
  }
}

}  // namespace refrain::engine
