#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "engine/answers_in_cache.h"
#include "engine/engine_loop.h"

namespace refrain::engine {
namespace {

// Texts in order, to find the one that begins most like another.
class OrderedTexts {
 public:
  void Add(const std::vector<TokenId>& text) { texts_.push_back(text); }
  void Sort() { std::ranges::sort(texts_, std::ranges::lexicographical_compare); }
  // So many first tokens some text has in common with this one.
  int32_t MostCommonTokens(std::span<const TokenId> text) const {
    // The most alike stand beside where it would stand.
    const auto behind =
        std::ranges::lower_bound(texts_, text, std::ranges::lexicographical_compare);
    ptrdiff_t most = 0;
    const auto consider = [&](std::span<const TokenId> other) {
      most = std::max(most, std::ranges::mismatch(text, other).in1 - text.begin());
    };
    if (behind != texts_.end()) consider(*behind);
    if (behind != texts_.begin()) consider(*std::prev(behind));
    return static_cast<int32_t>(most);
  }

 private:
  std::vector<std::span<const TokenId>> texts_;
};

}  // namespace

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
  DropBeams(*request, goes_on);  // first, as forks need slots
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

// Nobody saw it: only what a hypothesis has of it may be asked for again. And what one that goes
// on, but has made way, has in common with it: of that there may be no other chunk.
void EngineLoop::DropBeams(const RunningRequest& request, const std::vector<bool>& goes_on) {
  OrderedTexts away;
  for (size_t i = 0; i < goes_on.size(); ++i) {
    const SequenceState& beam = *request.choices()[i];
    if (goes_on[i] && beam.phase != SequencePhase::kRunning) away.Add(beam.generated);
  }
  away.Sort();
  AnswersInCache answers = AnswersOf(request);
  for (size_t i = 0; i < goes_on.size(); ++i) {
    if (goes_on[i]) continue;
    SequenceState* const beam = request.choices()[i].get();
    const int32_t kept = beam->kept_generated;
    const int32_t shared = away.MostCommonTokens(beam->generated);
    if (beam->phase == SequencePhase::kRunning && shared <= kept) {
      Withdraw(beam, request.prompt_tokens() + kept);
    } else {
      // What it shares stays no longer than that one needs it: it is not marked.
      if (kept > 0) {
        answers.Keep(std::span(beam->generated).first(static_cast<size_t>(kept)),
                     kvcache::AnswerEnd::kOther);
      }
      Withdraw(beam);
      answers.Forget(beam->generated, request.prompt_tokens() + std::max(kept, shared));
    }
    beam->phase = SequencePhase::kEnded;
    sequences_.erase(beam->id);
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
  std::vector<std::vector<TokenId>> texts;
  for (const BeamSearch::Hypothesis& best : found) {
    std::vector<TokenId>& generated = texts.emplace_back();
    for (const BeamSearch::Step& step : best.steps) generated.push_back(step.chosen.token);
    RememberTurn(*request, generated);
  }
  AnswersInCache answers = AnswersOf(*request);
  // Before the others go, who would take along what the best have left behind.
  for (const auto& generated : texts) answers.Keep(generated, kvcache::AnswerEnd::kOther);
  for (const auto& beam : request->choices()) {
    WithdrawForGood(beam.get(), request->prompt_tokens() + beam->kept_generated, &answers);
    sequences_.erase(beam->id);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const bool stopped = !found[i].steps.empty() && found[i].steps.back().chosen.ends;
    if (!stopped) continue;  // how it ended tells nothing
    answers.Keep(texts[i], AnswerEndOf(request->encoded().answers, FinishReason::kStop,
                                       *parts_.tokenizer, texts[i]));
  }
  request->EndBeams();
  MarkChanged(request);
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
