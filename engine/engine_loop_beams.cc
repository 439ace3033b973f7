#include <algorithm>
#include <utility>

#include "engine/engine_loop.h"

namespace refrain::engine {

void EngineLoop::ApplyToBeam(SequenceState* beam, SampledToken row) {
  RunningRequest* const request = beam->request;
  if (request->beams()->Deliver(beam->choice, std::move(row))) {
    AdvanceBeams(request);
  } else if (beam->phase == SequencePhase::kWaiting) {
    Park(beam);  // preempted while its step was in flight
  }
}

void EngineLoop::AdvanceBeams(RunningRequest* request) {
  const std::vector<BeamSearch::Beam>& beams = request->beams()->Advance();
  request->CountGenerated(request->request().sequences());  // those of dropped beams too
  if (request->beams()->over()) return EndBeams(request);
  const std::vector<std::shared_ptr<SequenceState>> before = request->choices();
  for (const int32_t parent : request->beams()->ended_parents()) {
    before[static_cast<size_t>(parent)]->KeepGenerated();
  }
  std::vector<bool> goes_on(before.size(), false);
  for (const BeamSearch::Beam& beam : beams) goes_on[static_cast<size_t>(beam.parent)] = true;
  // First, as forks need slots.
  for (size_t i = 0; i < before.size(); ++i) {
    if (goes_on[i]) continue;
    WithdrawBeam(before[i].get());
    before[i]->phase = SequencePhase::kEnded;
    sequences_.erase(before[i]->id);
  }
  // A beam goes on as its best child; others are forked off before it gets its next token.
  std::vector<std::shared_ptr<SequenceState>> after;
  for (const BeamSearch::Beam& beam : beams) {
    const auto parent = static_cast<size_t>(beam.parent);
    if (goes_on[parent]) {
      goes_on[parent] = false;
      after.push_back(before[parent]);
    } else {
      after.push_back(request->MakeBeam(*before[parent]));
      ForkBeam(after.back(), *before[parent]);
    }
  }
  for (size_t i = 0; i < after.size(); ++i) after[i]->generated.push_back(beams[i].token);
  request->SetBeams(std::move(after));
  for (const auto& beam : request->choices()) {
    if (beam->phase == SequencePhase::kParked) {
      Wait(beam);
    } else if (beam->phase == SequencePhase::kWaiting) {
      Look(beam.get());
    }
  }
}

void EngineLoop::ForkBeam(const std::shared_ptr<SequenceState>& child,
                          const SequenceState& parent) {
  if (parent.phase != SequencePhase::kRunning ||
      static_cast<int32_t>(snapshot_.running.size()) >= snapshot_.limits.max_sequences) {
    return;
  }
  kvcache::CacheManager& cache = *parts_.cache;
  if (!cache.Fork(child->id, parent.id, cache.published_tokens(parent.id)).ok()) return;
  child->phase = SequencePhase::kRunning;
  sequences_[child->id] = child;
  snapshot_.running.insert(FindEntry(snapshot_.running, child->id),
                           RunningEntry{.sequence = child->id,
                                        .turn_begin = child->known_tokens(),
                                        .priority = child->request->request().priority,
                                        .tenant = child->request->tenant()});
}

void EngineLoop::EndBeams(RunningRequest* request) {
  const BeamGroup& beams = *request->beams();
  const std::vector<BeamSearch::Hypothesis> found = beams.Best(request->request().n);
  for (const BeamSearch::Hypothesis& best : found) {
    if (best.steps.empty() || static_cast<int32_t>(best.steps.size()) < beams.length()) continue;
    request->choices()[static_cast<size_t>(best.steps.back().parent)]->KeepGenerated();
  }
  for (const auto& beam : request->choices()) {
    WithdrawBeam(beam.get());
    sequences_.erase(beam->id);
  }
  for (const BeamSearch::Hypothesis& best : found) {
    std::vector<TokenId> generated;
    for (const BeamSearch::Step& step : best.steps) generated.push_back(step.chosen.token);
    RememberTurn(*request, generated);
    const bool stopped = !best.steps.empty() && best.steps.back().chosen.ends;
    if (!stopped) continue;  // what stays of it is kept, and how it ended tells nothing
    KeepAnswer(
        *request, generated,
        AnswerEndOf(request->encoded().answers, FinishReason::kStop, *parts_.tokenizer, generated));
  }
  request->EndBeams();
  MarkChanged(request);
}

// Nobody saw it: only what a hypothesis has of it may be asked for again.
void EngineLoop::WithdrawBeam(SequenceState* beam) {
  Withdraw(beam, beam->request->prompt_tokens() + beam->kept_generated);
}

void EngineLoop::Park(SequenceState* beam) {
  Withdraw(beam);
  beam->phase = SequencePhase::kParked;
  sequences_.erase(beam->id);
}

bool EngineLoop::ParkDeliveredBeams(bool only_for_siblings) {
  std::vector<SequenceState*> delivered;
  for (const RunningEntry& entry : snapshot_.running) {
    SequenceState* const sequence = sequences_.at(entry.sequence).get();
    const BeamGroup* const beams = sequence->request->beams();
    if (beams == nullptr || !beams->delivered(sequence->choice)) continue;
    const auto& siblings = sequence->request->choices();
    if (only_for_siblings &&
        std::none_of(siblings.begin(), siblings.end(), [](const auto& sibling) {
          return sibling->phase == SequencePhase::kWaiting;
        })) {
      continue;
    }
    delivered.push_back(sequence);
  }
  for (SequenceState* const beam : delivered) Park(beam);
  stats_.preemptions_total += static_cast<int64_t>(delivered.size());
  return !delivered.empty();
}

}  // namespace refrain::engine
