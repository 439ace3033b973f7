#include "engine/loop_observer.h"

#include <algorithm>

namespace refrain::engine {
namespace {

double Seconds(Clock::TimePoint begin, Clock::TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Whether the slot computes the one row of a sequence that decodes. (A prompt's last row alone
// looks the same and costs the same.)
bool Decodes(const kernels::SlotStep& slot) { return slot.num_rows == 1; }

void CountKeys(const StepBatch& batch, int32_t chunk_tokens, StepObservation* step) {
  const AttentionPlanArrays& plan = *batch.plan;
  for (const kernels::AttentionRun& run : plan.runs) {
    if (run.chunk_begin == run.chunk_end) continue;
    const int32_t run_tokens =
        plan.chunks[static_cast<size_t>(run.chunk_end) - 1].token_begin + chunk_tokens;
    int64_t keys = 0;
    int32_t readers = 0;
    for (int32_t i = run.slot_begin; i < run.slot_end; ++i) {
      const kernels::RunSlot& entry = plan.slots[static_cast<size_t>(i)];
      const kernels::SlotStep& slot = batch.slots[static_cast<size_t>(entry.slot)];
      if (!Decodes(slot)) continue;
      const int32_t begin = std::max(entry.key_begin, slot.key_begin);
      const int32_t end = std::min({entry.key_end, slot.key_end, entry.key_begin + run_tokens});
      if (end <= begin) continue;
      keys += end - begin;
      ++readers;
    }
    step->decode_keys += keys;
    if (readers >= 2) step->shared_decode_keys += keys;
  }
}

}  // namespace

void LoopObserver::PlanEnds() {
  if (observer_ == nullptr) return;
  step_ = {};
  step_.plan_seconds = Seconds(plan_begin_, clock_->Now());
}

void LoopObserver::Launched(const LaunchedStep& step, const StepBatch& batch) {
  if (observer_ == nullptr) return;
  for (const LaunchedStep::Work& work : step.work) {
    const int32_t prompt_tokens = work.sequence->request->prompt_tokens();
    const int32_t of_prompt = std::clamp(prompt_tokens - work.first_token, 0, work.num_tokens);
    step_.prefill_rows += of_prompt;
    step_.decode_rows += work.num_tokens - of_prompt;
  }
  step_.sequences = static_cast<int32_t>(step.work.size());
  CountKeys(batch, chunk_tokens_, &step_);
}

void LoopObserver::TurnEnds(double turn_seconds, double model_seconds, double planning_seconds) {
  if (observer_ == nullptr) return;
  step_.turn_seconds = turn_seconds;
  step_.model_seconds = model_seconds;
  step_.scheduling_seconds = turn_seconds - model_seconds;
  step_.planning_seconds = planning_seconds;
  observer_->OnStep(step_);
}

void LoopObserver::Arrived(RunningRequest* request) {
  if (observer_ == nullptr) return;
  RequestTiming& timing = request->timing();
  timing.observed = true;
  timing.arrived = clock_->Now();
  timing.submitted = request->encoded().submitted.value_or(timing.arrived);
  const bool beams = request->beams() != nullptr;
  timing.sequences.resize(beams ? 1 : static_cast<size_t>(request->request().sequences()));
  observer_->OnArrival(request->prompt_tokens());
}

void LoopObserver::Started(RunningRequest* request) {
  if (observer_ == nullptr) return;
  RequestTiming& timing = request->timing();
  timing.started = clock_->Now();
  observer_->OnFirstScheduled(Seconds(timing.arrived, *timing.started), request->prompt_tokens(),
                              request->usage().cached_tokens);
}

void LoopObserver::Token(RunningRequest* request, int32_t choice) {
  if (observer_ == nullptr) return;
  RequestTiming& timing = request->timing();
  observer_->OnTokens(1);
  timing.last_token = collected_;
  const bool is_first = !timing.first_token.has_value();
  if (is_first) {
    timing.first_token = collected_;
    observer_->OnFirstToken(Seconds(timing.submitted, collected_), request->prompt_tokens(),
                            request->usage().cached_tokens);
  }
  // Beams advance together: the best one stands for all.
  if (static_cast<size_t>(choice) >= timing.sequences.size()) return;
  RequestTiming::Sequence& sequence = timing.sequences[static_cast<size_t>(choice)];
  if (sequence.tokens++ > 0) {
    observer_->OnTokenGap(Seconds(sequence.last_token, collected_));
  } else {
    sequence.first_token = collected_;
    if (!is_first) observer_->OnFurtherFirstToken(Seconds(timing.submitted, collected_));
  }
  sequence.last_token = collected_;
}

void LoopObserver::ListChoices(const RequestTiming& timing) {
  choices_.clear();
  if (timing.sequences.size() < 2) return;
  for (const RequestTiming::Sequence& sequence : timing.sequences) {
    ChoiceObservation& choice = choices_.emplace_back();
    choice.tokens = sequence.tokens;
    if (sequence.tokens == 0) {  // it ended with the request
      choice.total_s = Seconds(timing.submitted, clock_->Now());
      continue;
    }
    choice.total_s = Seconds(timing.submitted, sequence.last_token);
    choice.first_token_s = Seconds(timing.submitted, sequence.first_token);
    choice.decode_s = Seconds(sequence.first_token, sequence.last_token);
    if (timing.started.has_value()) {
      choice.prefill_s = Seconds(*timing.started, sequence.first_token);
    }
  }
}

void LoopObserver::Ended(const RunningRequest& request) {
  if (observer_ == nullptr) return;
  const RequestTiming& timing = request.timing();
  RequestObservation end;
  end.tenant = request.request().tenant;
  end.status = timing.status;
  end.prompt_tokens = request.prompt_tokens();
  end.cached_tokens = request.usage().cached_tokens;
  end.generated_tokens = request.usage().completion_tokens;
  for (const RequestTiming::Sequence& sequence : timing.sequences) {
    end.most_choice_tokens = std::max(end.most_choice_tokens, sequence.tokens);
  }
  end.n = request.request().n;
  end.max_tokens = request.max_tokens();
  end.prompt_done = timing.first_token.has_value() || timing.status == absl::StatusCode::kOk;
  end.ends = timing.ends;
  end.encode_s = Seconds(timing.submitted, timing.arrived);
  if (timing.started.has_value()) end.queue_s = Seconds(timing.arrived, *timing.started);
  if (timing.first_token.has_value()) {
    end.first_token_s = Seconds(timing.submitted, *timing.first_token);
    end.decode_s = Seconds(*timing.first_token, timing.last_token);
    if (timing.started.has_value()) {
      end.prefill_s = Seconds(*timing.started, *timing.first_token);
    }
  }
  end.total_s = Seconds(timing.submitted, clock_->Now());
  ListChoices(timing);
  end.choices = choices_;
  observer_->OnRequestEnd(end);
}

}  // namespace refrain::engine
