#include <algorithm>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "engine/answers_in_cache.h"
#include "engine/engine_loop.h"

namespace refrain::engine {

AnswersInCache EngineLoop::AnswersOf(const RunningRequest& request) const {
  return {&request, NamespaceOf(request.request()), parts_.cache};
}

void EngineLoop::Withdraw(SequenceState* sequence, std::optional<int32_t> kept_tokens) {
  kvcache::CacheManager& cache = *parts_.cache;
  if (sequence->phase == SequencePhase::kRunning) {
    snapshot_.running.erase(FindEntry(snapshot_.running, sequence->id));
    if (kept_tokens.has_value()) {
      cache.LeaveForGood(sequence->id, *kept_tokens);
    } else if (sequence->request->request().picks_best()) {
      cache.LeaveForNow(sequence->id);
    } else {
      cache.Leave(sequence->id);
    }
    StopProducing(sequence->id);
  } else if (sequence->phase == SequencePhase::kWaiting) {
    RemoveWaiting(sequence->id);
    pending_.Forget(sequence->id);
  }
}

void EngineLoop::WithdrawForGood(SequenceState* sequence, int32_t kept_tokens,
                                 AnswersInCache* answers) {
  // Else it left before, when it was preempted or ended.
  const bool in_cache = sequence->phase == SequencePhase::kRunning;
  Withdraw(sequence, kept_tokens);
  if (in_cache || kept_tokens >= sequence->known_tokens()) return;
  answers->Forget(sequence->generated, kept_tokens);
}

void EngineLoop::EndChoice(SequenceState* sequence, ChoiceEnd end) {
  RunningRequest* const request = sequence->request;
  const bool picked_later = request->request().picks_best();
  if (!picked_later) RememberTurn(*request, sequence->generated);
  sequence->answer =
      AnswerEndOf(request->encoded().answers, end.reason, *parts_.tokenizer, sequence->generated);
  const bool left_before = sequence->phase != SequencePhase::kRunning;
  if (!left_before && !picked_later) parts_.cache->Answered(sequence->id, sequence->answer);
  if (!HandOver(*sequence)) Withdraw(sequence);
  // The cache hears only now how it ended.
  if (left_before && !picked_later && sequence->answer != kvcache::AnswerEnd::kOther) {
    AnswersOf(*request).Keep(sequence->generated, sequence->answer);
  }
  request->End(sequence, std::move(end));
  if (picked_later && request->finished()) KeepBest(*request);
  MarkChanged(request);
  sequences_.erase(sequence->id);
  // It may have ended as one that was preempted, before it published the prompt.
  if (!request->finished()) ReleaseParked(request);
}

// It is known now which sequences are the answer; nobody will ask for the others. What those have
// in common with it Keep has marked, also where the answer's own chunk is gone.
void EngineLoop::KeepBest(const RunningRequest& request) {
  const auto& choices = request.choices();
  AnswersInCache answers = AnswersOf(request);
  for (const size_t best : request.best()) {
    RememberTurn(request, choices[best]->generated);
    answers.Keep(choices[best]->generated, choices[best]->answer);
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    if (std::ranges::find(request.best(), i) != request.best().end()) continue;
    WithdrawForGood(choices[i].get(), request.prompt_tokens(), &answers);
  }
}

// One by one, each would move all that stand behind it.
void EngineLoop::TakeOutOfQueue(const RunningRequest& request) {
  std::vector<SequenceId> ids;
  for (const auto& choice : request.choices()) {
    if (choice->phase != SequencePhase::kWaiting) continue;
    choice->phase = SequencePhase::kParked;
    parts_.cache->StopAwaiting(choice->id);
    pending_.Forget(choice->id);
    ids.push_back(choice->id);
  }
  if (ids.empty()) return;
  std::sort(ids.begin(), ids.end());  // beams stand by rank
  // No other request has an id between two of these.
  const auto first = FindEntry(snapshot_.waiting, ids.front());
  assert(first != snapshot_.waiting.end() && first->sequence == ids.front());
  snapshot_.waiting.erase(first, first + std::ssize(ids));
  lines_.Remove(ids);
}

void EngineLoop::FinishRequest(RunningRequest* request, absl::Status status,
                               std::optional<int32_t> kept_tokens) {
  const bool nobody_saw_any = request->request().picks_best();
  if (nobody_saw_any && !kept_tokens.has_value()) kept_tokens = request->prompt_tokens();
  TakeOutOfQueue(*request);
  AnswersInCache answers = AnswersOf(*request);
  for (const auto& choice : request->choices()) {
    const bool ended = choice->phase == SequencePhase::kEnded;
    if (ended && !nobody_saw_any) continue;
    if (!nobody_saw_any) RememberTurn(*request, choice->generated);
    if (kept_tokens.has_value()) {
      WithdrawForGood(choice.get(), *kept_tokens, &answers);
    } else {
      Withdraw(choice.get());
    }
    if (ended) continue;
    sequences_.erase(choice->id);
  }
  counts_.MakesChoices(*request);
  request->Finish(std::move(status));
  MarkChanged(request);
}

void EngineLoop::EndWaiting(TenantEnd end) {
  int32_t ended = 0;
  for (const auto& [number, request] : requests_) {
    if (number >= end.before || !end.tenants.contains(request->request().tenant)) continue;
    if (request->started() || request->finished()) continue;
    FinishRequest(request.get(), end.reason);
    ++ended;
  }
  std::exchange(end.done, nullptr)(ended);
  for (const std::string& tenant : std::exchange(end.tenants, {})) tenant_ends_[tenant] = end;
}

}  // namespace refrain::engine
