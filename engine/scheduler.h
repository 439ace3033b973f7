#ifndef REFRAIN_ENGINE_SCHEDULER_H_
#define REFRAIN_ENGINE_SCHEDULER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/options.h"
#include "engine/step_plan.h"
#include "kvcache/shared_runs.h"

namespace refrain::engine {

struct SchedulerLimits {
  int32_t max_sequences = 64;
  int32_t step_token_budget = 512;  // at least max_sequences, so that decode always fits
  int32_t chunk_tokens = 64;
  Policy policy = Policy::kFcfs;
  // Under kFcfs, and no other policy: one whose prompt is mostly in use by running sequences may
  // overtake others, so that those that share run together, where there is PassingRoom for all of
  // them (with several tenants: for all that wait). Nobody is overtaken once it has waited this
  // many steps: from then on it also comes before what is left of younger prefills that run. So
  //   delay of a prefill by those that pass it <= 5 / 4 * grouping_delay_steps,
  // since each step until then delays it by a step at most, and from then on all that younger ones
  // do before it is to decode, whose delay PassingRoom limits to the fourth. (Where all else is
  // equal: how long answers are, and what other tenants get. And of rows alone: slots and chunks
  // are kept for whoever is passed, but not while it is held, nor for growth beyond these steps,
  // nor from the other beams of who passes.)
  int32_t grouping_delay_steps = 32;
  // Under the other policies: whose request came this many steps ago comes before all whose did
  // not, oldest first, and under kPriority keeps its chunks before them. So it is admitted after at
  // most the sequences that are older and those admitted before.
  int32_t ageing_steps = 1000;
  // With more tenants than slots: who runs keeps its slot for its prompt, and then for so many
  // tokens of its answer. (A prompt that gave way in between might have to begin again each time.)
  int32_t turn_tokens = 128;
};

// Sequence ids ascend with age: the lower, the older.

struct RunningEntry {
  SequenceId sequence{};
  int32_t runnable_tokens = 0;   // rows it could compute now: the rest of its prompt, or 1, or 0
  int32_t later_tokens = 0;      // rows behind these, of the prompt as well
  bool decoding = false;         // the row is that of a token it generated last
  bool replays = false;          // their K and V are there: the rows take no chunk
  int32_t next_token = 0;        // that the first of these rows is of
  int32_t turn_begin = 0;        // the tokens that it had when it was admitted
  int32_t reserved_tokens = 0;   // that its chunks hold
  int32_t exclusive_chunks = 0;  // given back if it is preempted; 0 where no plan will ask
  int32_t shared_run = -1;       // and into shared_runs: given back when all its holders are
  int64_t priority = 0;          // the best of its own and of those who wait for its chunks
  int32_t tenant = 0;            // into SchedulerSnapshot::tenants
  // Under kFcfs: the oldest of turn_of() that waits for its chunks, if older than it. Its prefill
  // comes as early as that one's would.
  std::optional<SequenceId> older;
  // Of the tenants that wait for its chunks, the one served least, if less than its own: its
  // prefill has that one's turns, and counts as that one's.
  std::optional<int32_t> lender;

  int32_t turn_of() const { return lender.value_or(tenant); }
  SequenceId age() const { return older.value_or(sequence); }
};

struct WaitingEntry {
  SequenceId sequence{};
  int32_t prefill_tokens = 0;   // prompt, and what it had generated before it was preempted
  int32_t shared_tokens = 0;    // of these, found in the cache when it was last looked for;
                                // less than prefill_tokens
  int32_t idle_chunks = 0;      // that hold them and count as free until it runs
  int32_t replayed_tokens = 0;  // of the shared ones, computed again for their log-probabilities
  uint64_t next_chunk_key = 0;  // names its first missing chunk and all before it; 0 = none
  bool held = false;            // that chunk is being computed by another: not to be admitted
  SequenceId producer{};        // by which, if held
  bool shares_running = false;  // most of its prefill is in chunks that running sequences use
  int64_t priority = 0;
  int64_t since_step = 0;  // when its request came
  int32_t tenant = 0;      // into SchedulerSnapshot::tenants

  // Free chunks that it takes with its whole prefill and the token behind that.
  int32_t ChunksToAdmit(int32_t chunk_tokens) const {
    return prefill_tokens / chunk_tokens + 1 - shared_tokens / chunk_tokens + idle_chunks;
  }
  // That its prefill takes.
  int32_t RowsToAdmit() const { return prefill_tokens - shared_tokens + replayed_tokens; }
};

// Where sequences of several tenants (API keys) wait or run: what each has had (FairShares).
struct TenantEntry {
  int64_t served = 0;           // the sum of CostOf what was computed for it
  int32_t weight_milli = 1000;  // of its share, in thousandths
  bool has_requests = true;     // waiting or running

  int64_t CostOf(int64_t tokens) const { return tokens * 1'000'000 / weight_milli; }
};

// What a plan depends on, kept up to date by the engine loop between steps.
struct SchedulerSnapshot {
  SchedulerLimits limits;
  int64_t step = 0;
  int32_t free_chunks = 0;                      // free, or cached and evictable at once
  std::vector<RunningEntry> running;            // oldest first
  std::vector<kvcache::SharedRun> shared_runs;  // of these; empty where no plan will ask
  std::deque<WaitingEntry> waiting;             // oldest first; since_step ascends
  std::vector<TenantEntry> tenants;             // empty: all sequences are one tenant's
};

// The entry of a sequence in one of the snapshot's lists, or where it would stand.
template <typename List>
auto FindEntry(List& list, SequenceId id) {
  return std::lower_bound(list.begin(), list.end(), id,
                          [](const auto& entry, SequenceId key) { return entry.sequence < key; });
}

// Decides what the next step computes. Pure: no clock, no state, integers only.
//
//   1. Every running sequence that can decode gets its row, the oldest first. One that needs a
//      chunk when none is free takes those of the least urgent, which is preempted: the youngest,
//      under kPriority of those of the lowest priority. A sequence is never failed.
//   2. What is left of the budget goes to running prefills, the oldest first (under kPriority: the
//      best priority of its tenant in its place), cut as needed. Under kFcfs those that have waited
//      for grouping_delay_steps are admitted before younger ones' rows, as in 3.
//   3. What is left then admits waiting sequences in the policy's order, until one does not fit
//      (no later one overtakes it): a slot, and chunks for its whole prefill, for the rest of the
//      running prefills and a margin for the growth of those that decode. Of those that lack the
//      same chunk only the first is admitted: the others will share what it computes. A plan that
//      preempts admits nothing.
//
// With several tenants, which tenant comes first decides before the policy, ageing and priority do,
// and those decide among the sequences of one tenant:
//   2+3. The rest of the budget goes to whichever tenant has been served least for its weight: to
//      its running prefills and those that it waits for, then to its waiting sequences; what it
//      gets counts as served within the plan. When the sequence whose turn it is does not fit,
//      nothing else is admitted; but if its tenant runs something, one sequence of each tenant that
//      runs nothing is, until one of these does not fit. (So what was passed is put off until its
//      own tenant runs nothing, at most: from then on nobody passes it.)
//   4. If that is one of a tenant that runs nothing, others make way for it, in a plan that has
//      preempted for 1. as in any other that admits nothing. For a slot: who runs most for its
//      weight, if that is more than its part of max_sequences, gives up its least urgent. For
//      chunks: who has most of the cache for its weight, if that is more than its part of it, gives
//      up its least urgent, and so on until the whole prefill fits; or nobody does, if it would
//      not. A tenant's last sequence is not taken, so that each goes on with something; but where
//      there are more tenants than slots, that of the tenant that has been served most, if it has
//      been served more than the one whose turn it is, and once the sequence has had turn_tokens.
//   5. A tenant that has more than its part of the cache also comes first where chunks lack in 1.,
//      and where they lack for the rest of another's running prefill, or of its own that has the
//      turns of another. Where no tenant of several sequences has, it is the tenant of the youngest
//      that gives up its least urgent.
// What sequences of one tenant share counts once among the chunks that it has.
//
// So a request of a tenant that runs nothing, and has been served least, is admitted by the second
// plan after it came, whatever others have waiting or run, if its chunks and a margin are no more
// than its part of the cache, and no other tenant has more than its own part in one sequence; with
// more tenants than slots, the plan after some sequence has had its turn.
//
// Some running or waiting sequence always gets work or is preempted while any can run.
//
// Not all that runs was admitted here: a beam that goes on more than once forks beside the plan,
// into slots and chunks that are free then (EngineLoop::ForkBeam), whoever waits; a search may so
// take as many slots as it has beams before one that has waited longer. The next plan sees them as
// running sequences of their request's age.
StepPlan Plan(const SchedulerSnapshot& snapshot);

// The running sequence that Plan takes chunks from first; there must be one.
SequenceId FirstToGiveWay(const SchedulerSnapshot& snapshot);

// Of the tenant's waiting sequences the one that Plan would admit first, where nobody is passed;
// null: none waits.
const WaitingEntry* FirstToStart(const SchedulerSnapshot& snapshot, int32_t tenant);

// What the engine loop calls: Plan, or what a test puts in its place.
using PlanFunction = std::function<StepPlan(const SchedulerSnapshot&)>;

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_SCHEDULER_H_
