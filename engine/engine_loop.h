#ifndef REFRAIN_ENGINE_ENGINE_LOOP_H_
#define REFRAIN_ENGINE_ENGINE_LOOP_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "engine/admission_ledger.h"
#include "engine/answers_in_cache.h"
#include "engine/clock.h"
#include "engine/deadline_list.h"
#include "engine/engine.h"
#include "engine/engine_loop_parts.h"
#include "engine/fair_shares.h"
#include "engine/loop_observer.h"
#include "engine/memory_backoff.h"
#include "engine/model_runner.h"
#include "engine/pages_ahead.h"
#include "engine/pending_prefixes.h"
#include "engine/prefix_keys.h"
#include "engine/request_queue.h"
#include "engine/running_request.h"
#include "engine/scheduler.h"
#include "engine/seen_prefixes.h"
#include "engine/step_builder.h"
#include "engine/tenant_end.h"
#include "engine/text/tokenizer.h"
#include "engine/turn_memory.h"
#include "engine/turn_watch.h"
#include "engine/waiting_counts.h"
#include "engine/waiting_lines.h"
#include "kvcache/cache_manager.h"

namespace refrain::engine {

// The engine thread: the single writer of scheduler and cache.
//
// A turn: take in requests and cancellations -> Plan (pure) -> commit (preempt, admit, reserve: the
// one place that allocates) -> launch -> collect -> stop criteria -> streams. Where the runner
// allows two steps in flight, the second is launched before the first is collected: its decode rows
// take their ids from the device, a stop is seen one step late, and the extra token is dropped.
//
// Sharing: a request's prompt is matched when it arrives, and again when that may have changed. One
// whose next chunk another is computing is held until that is done (PendingPrefixes).
//
// Beam search: beams are sequences like others that wait for one another at every token
// (BeamGroup). What a request gets depends on other requests in nothing but time.
//
// Turn and Run: one thread. stats and health: any thread. Failure: a step that lacks memory on the
// device runs again as smaller ones; one that fails otherwise, or is the smallest, finishes its
// requests with its status; at INTERNAL, a broken device, all are finished and health says so, for
// good. It also says so of a turn that does not end, until it does (TurnWatch); nothing is refused
// for that.
class EngineLoop {
 public:
  // Before each plan so many waiting sequences are matched again if that is out of date: the first
  // ones, and others in turn. So what a plan goes by is at most waiting / kRefreshedInTurn plans
  // old, rounded up; PendingPrefixes tells more at once.
  static constexpr size_t kRefreshedFirst = 8;
  static constexpr size_t kRefreshedInTurn = 8;

  EngineLoop(const EngineLoopParts& parts, const LoopOptions& options);
  ~EngineLoop();

  // Turns until the queue is closed, asleep while idle; then finishes what is left as CANCELLED.
  void Run();
  // One turn, for tests; false when nothing is left to do but to wait for the queue.
  bool Turn();

  EngineStats stats() const;
  absl::Status health() const;  // as Engine::health
  // On the loop's thread: sequences that wait for another's chunks, requests with a deadline ahead.
  size_t held_sequences() const { return pending_.held_count(); }
  size_t deadlines() const { return deadlines_.size(); }

 private:
  RequestQueue::Items Sleep();
  void TouchAhead();  // memory for the chunks that running sequences take next
  void TakeIn(RequestQueue::Items items);
  void Accept(std::unique_ptr<EncodedRequest> encoded);
  void EndWaiting(TenantEnd end);
  void ExpireDeadlines();
  bool LaunchNext();
  void Preempt(SequenceState* sequence);
  bool Admit(const std::shared_ptr<SequenceState>& sequence);
  absl::Status JoinCache(SequenceState* sequence);
  void StartRunning(const std::shared_ptr<SequenceState>& sequence, bool goes_on);  // it joined

  // --- what a plan depends on (engine_loop_snapshot.cc) ---
  void RefreshSnapshot();
  bool SomeTenantWaits() const;  // and runs nothing: others may have to make way for it
  void TellShares();             // once a plan is carried out: which tenants could have used more

  // --- sharing (engine_loop_sharing.cc) ---
  kvcache::Namespace NamespaceOf(const Request& request) const;
  // Another choice of the same request that has computed all of the prompt that can be shared.
  const SequenceState* ForkSource(const SequenceState& sequence) const;
  // Lets a waiting choice of the request run in place of one that ends; false: none should.
  bool HandOver(const SequenceState& ended);
  int32_t WantedTokens(const SequenceState& sequence) const;
  size_t PresentKeys(const SequenceState& sequence, int32_t found_tokens) const;
  size_t PublishedKeys(const SequenceState& sequence, int32_t end) const;
  bool SharesRunning(const WaitingEntry& entry, int32_t unused_chunks) const;
  void Look(SequenceState* sequence);  // for its tokens in the cache, and whether it is held
  void Release(const std::vector<PendingPrefixes::Released>& released, bool in_use);  // by its keys
  void Await(const SequenceState& sequence, const WaitingEntry& entry);  // what Look has found
  void Describe(SequenceState* sequence, WaitingEntry* entry);
  void RefreshWaiting();
  // Others are held for what it computes, unless it has more to replay first than fits into a step.
  void StartProducing(SequenceState* sequence);
  void StopProducing(SequenceId id);
  void InheritPriorities();
  void InheritTurns();
  void InheritAges();

  void CollectOldest();
  // --- failed steps, and none (engine_loop_failures.cc) ---
  absl::StatusOr<StepResult> Collect(const LaunchedStep& step);  // not in in_flight_ any more
  // What lacked memory runs again in smaller steps, or its requests end. Collects the rest.
  void HandleFailure(const LaunchedStep& step, const absl::Status& status);
  void BreakDeadlock();
  // The sequences of a step that came to nothing give up their chunks and wait to run again.
  void GiveUp(const LaunchedStep& step);

  void Publish(const LaunchedStep& step);
  void Apply(const LaunchedStep::Logits& wanted, SampledToken sampled);
  void EndPromptOnly(const LaunchedStep& step);  // requests that wanted no more
  void ReleaseParked(RunningRequest* request);

  // --- beam search (engine_loop_beams.cc) ---
  void ApplyToBeam(SequenceState* beam, SampledToken row);
  void AdvanceBeams(RunningRequest* request);
  // Lets `child` run with the tokens of `parent`, where there is room for it.
  void ForkBeam(const std::shared_ptr<SequenceState>& child, const SequenceState& parent);
  void EndBeams(RunningRequest* request);
  void DropBeams(const RunningRequest& request, const std::vector<bool>& goes_on);
  void Park(SequenceState* beam);  // one that has delivered runs no more until it goes on
  // Beams that have delivered make room for others, or only their own request's. False: none have.
  bool ParkDeliveredBeams(bool only_for_siblings);

  // What a choice generated, for the next turn of its conversation, and to explain misses.
  void RememberTurn(const RunningRequest& request, const std::vector<TokenId>& generated);
  void RememberPrompt(const SequenceState& sequence);  // computed; kept where that was asked for
  // --- endings (engine_loop_endings.cc) ---
  AnswersInCache AnswersOf(const RunningRequest& request) const;
  // Out of scheduler and cache; of what it alone has only the first `kept_tokens` stay as cache,
  // for good: also of what it left when it made way, or ended.
  void Withdraw(SequenceState* sequence, std::optional<int32_t> kept_tokens = std::nullopt);
  void WithdrawForGood(SequenceState* sequence, int32_t kept_tokens, AnswersInCache* answers);
  void EndChoice(SequenceState* sequence, ChoiceEnd end);
  void KeepBest(const RunningRequest& request);
  void TakeOutOfQueue(const RunningRequest& request);  // all of its sequences
  void FinishRequest(RunningRequest* request, absl::Status status,
                     std::optional<int32_t> kept_tokens = std::nullopt);
  void FinishAll(const absl::Status& status);
  void Die(absl::Status status);
  absl::Status DeathReason() const;  // OK while it lives, stalled or not

  void Wait(const std::shared_ptr<SequenceState>& sequence);
  void RemoveWaiting(SequenceId id);
  void MarkChanged(RunningRequest* request) { changed_.push_back(request->number()); }
  void FlushChanged();
  void PublishStats();
  bool HasWork() const { return !requests_.empty() || !in_flight_.empty(); }

  const EngineLoopParts parts_;
  const LoopOptions options_;
  SchedulerSnapshot snapshot_;
  FairShares shares_;
  WaitingLines lines_{&shares_};
  WaitingCounts counts_;
  PrefixKeyMaker prefix_keys_;
  PendingPrefixes pending_;
  SeenPrefixes seen_;
  MemoryBackoff backoff_;
  int fruitless_plans_ = 0;       // one after the other that launched nothing
  bool beams_run_ = false;        // some running sequence is one
  SequenceId last_refreshed_{0};  // in turn
  StepBuilder builder_;
  LoopObserver observer_;
  std::unordered_map<uint64_t, std::unique_ptr<RunningRequest>> requests_;    // by number
  std::unordered_map<SequenceId, std::shared_ptr<SequenceState>> sequences_;  // waiting, running
  std::deque<LaunchedStep> in_flight_;
  DeadlineList deadlines_;
  std::unordered_map<std::string, TenantEnd> tenant_ends_;  // the last of each: before, reason
  std::vector<uint64_t> changed_;                           // requests with something to send
  Clock::TimePoint collected_;                              // the last step
  double runner_seconds_ = 0, planning_seconds_ = 0;  // of this turn, as StepObservation has them
  std::vector<TokenId> known_ids_;                    // scratch
  uint64_t next_sequence_id_ = 1;
  std::mt19937_64 fresh_seeds_;
  EngineStats stats_;  // the engine thread's own

  TurnWatch watch_;
  mutable Mutex shared_mutex_;
  EngineStats shared_stats_ REFRAIN_GUARDED_BY(shared_mutex_);
  absl::Status death_ REFRAIN_GUARDED_BY(shared_mutex_);
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_ENGINE_LOOP_H_
