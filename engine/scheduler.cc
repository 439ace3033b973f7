#include "engine/scheduler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace refrain::engine {
namespace {

void AppendId(std::string* out, SequenceId id) { absl::StrAppend(out, static_cast<uint64_t>(id)); }

class Planner {
 public:
  explicit Planner(const SchedulerSnapshot& snapshot)
      : s_(snapshot),
        budget_tokens_(snapshot.limits.step_token_budget),
        free_chunks_(snapshot.free_chunks),
        running_(snapshot.running.size()),
        alive_(static_cast<int32_t>(snapshot.running.size())) {}

  StepPlan Run() {
    PlanDecodes();
    PlanPrefills();
    for (size_t i = 0; i < running_.size(); ++i) {
      if (running_[i].tokens > 0)
        plan_.work.push_back({s_.running[i].sequence, running_[i].tokens});
    }
    if (plan_.preempt.empty()) Admit();
    return std::move(plan_);
  }

 private:
  struct Share {
    int32_t tokens = 0;
    int32_t chunks = 0;  // taken from the free ones for `tokens`
    bool preempted = false;
  };

  int32_t ChunksFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + s_.limits.chunk_tokens - 1) / s_.limits.chunk_tokens);
  }

  // Chunks beyond those that the sequence has, to hold `tokens` more.
  int32_t MissingChunks(const RunningEntry& entry, int64_t tokens) const {
    return std::max(
        0, ChunksFor(entry.next_token + tokens) - entry.reserved_tokens / s_.limits.chunk_tokens);
  }

  void Give(size_t i, int32_t tokens) {
    running_[i].tokens = tokens;
    running_[i].chunks = MissingChunks(s_.running[i], tokens);
    budget_tokens_ -= tokens;
    free_chunks_ -= running_[i].chunks;
  }

  size_t Victim() const {
    std::optional<size_t> victim;
    for (size_t i = running_.size(); i-- > 0;) {
      if (running_[i].preempted) continue;
      if (s_.limits.policy != Policy::kPriority) return i;
      if (!victim.has_value() || s_.running[i].priority > s_.running[*victim].priority) victim = i;
    }
    return *victim;
  }

  void Preempt(size_t i) {
    budget_tokens_ += running_[i].tokens;
    free_chunks_ += running_[i].chunks + s_.running[i].exclusive_chunks;
    running_[i] = {.tokens = 0, .chunks = 0, .preempted = true};
    --alive_;
    plan_.preempt.push_back(s_.running[i].sequence);
  }

  // Whether the cache can spare the copy of a part of a chunk: nobody else runs, so that it may
  // give the chunk itself, cut.
  bool MayCutChunk(size_t i, int32_t tokens) const {
    const RunningEntry& entry = s_.running[i];
    return alive_ == 1 && entry.reserved_tokens % s_.limits.chunk_tokens != 0 &&
           MissingChunks(entry, tokens) - 1 <= free_chunks_;
  }

  // Preempts others until sequence i can have `tokens` more, or itself when nothing else is left.
  bool MakeRoom(size_t i, int32_t tokens) {
    while (MissingChunks(s_.running[i], tokens) > free_chunks_) {
      const size_t victim = Victim();
      if (victim == i && MayCutChunk(i, tokens)) return true;
      Preempt(victim);
      if (victim == i) return false;
    }
    return true;
  }

  void PlanDecodes() {
    for (size_t i = 0; i < running_.size() && budget_tokens_ > 0; ++i) {
      const RunningEntry& entry = s_.running[i];
      if (running_[i].preempted || !entry.decoding || entry.runnable_tokens == 0) continue;
      if (MakeRoom(i, 1)) Give(i, 1);
    }
  }

  std::vector<size_t> PrefillOrder() const {
    std::vector<size_t> order;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (!s_.running[i].decoding && s_.running[i].runnable_tokens > 0) order.push_back(i);
    }
    if (s_.limits.policy == Policy::kPriority) {
      std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
        return s_.running[a].priority < s_.running[b].priority;
      });
    }
    return order;
  }

  void PlanPrefills() {
    std::optional<size_t> stuck;
    bool any_work = std::any_of(running_.begin(), running_.end(),
                                [](const Share& share) { return share.tokens > 0; });
    for (const size_t i : PrefillOrder()) {
      if (budget_tokens_ <= 0) break;
      const RunningEntry& entry = s_.running[i];
      if (running_[i].preempted) continue;
      // A part of a chunk that it holds is not its own to write: it will be copied.
      const int64_t chunks =
          entry.reserved_tokens / s_.limits.chunk_tokens + std::max(0, free_chunks_);
      const int64_t room = chunks * s_.limits.chunk_tokens - entry.next_token;
      const int32_t tokens = static_cast<int32_t>(
          std::min<int64_t>(room, std::min(entry.runnable_tokens, budget_tokens_)));
      if (tokens > 0) {
        Give(i, tokens);
        any_work = true;
      } else if (!stuck.has_value()) {
        stuck = i;
      }
    }
    // Half-done prefills that hold all chunks between them: the oldest goes on.
    if (!any_work && stuck.has_value() && MakeRoom(*stuck, 1)) Give(*stuck, 1);
  }

  // Tries to start a sequence; false when no other may be tried after it.
  bool AdmitOne(const WaitingEntry& entry, int32_t spoken_for) {
    const int32_t shared_chunks = entry.shared_tokens / s_.limits.chunk_tokens;
    const int32_t chunks =
        ChunksFor(int64_t{entry.prefill_tokens} + 1) - shared_chunks + entry.idle_chunks;
    const int32_t margin = (alive_ + 3) / 4;
    if (chunks + margin + spoken_for > free_chunks_ && alive_ > 0) return false;
    const int32_t rows = entry.prefill_tokens - entry.shared_tokens + entry.replayed_tokens;
    // The rest of a part of a chunk is written in a copy, or in the chunk itself, cut, when there
    // is no other.
    const int32_t part_tokens = entry.shared_tokens % s_.limits.chunk_tokens;
    const int32_t own_chunks = std::max(free_chunks_ - entry.idle_chunks, part_tokens > 0 ? 1 : 0);
    const int64_t room =
        int64_t{own_chunks} * s_.limits.chunk_tokens - part_tokens + entry.replayed_tokens;
    const int32_t tokens =
        static_cast<int32_t>(std::min<int64_t>(room, std::min(rows, budget_tokens_)));
    if (tokens <= 0) return false;
    free_chunks_ -= chunks;
    budget_tokens_ -= tokens;
    ++alive_;
    if (entry.next_chunk_key != 0) claimed_.insert(entry.next_chunk_key);
    plan_.admit.push_back(entry.sequence);
    plan_.work.push_back({entry.sequence, tokens});
    return true;
  }

  bool MayGoOn() const { return alive_ < s_.limits.max_sequences && budget_tokens_ > 0; }

  // One that another computes a chunk for is passed over, not waited for.
  bool Held(const WaitingEntry& entry) const {
    return entry.held || (entry.next_chunk_key != 0 && claimed_.contains(entry.next_chunk_key));
  }

  void Admit() {
    if (!MayGoOn() || s_.waiting.empty()) return;
    int32_t spoken_for = 0;  // free chunks that running prefills will need, and a margin
    for (size_t i = 0; i < running_.size(); ++i) {
      if (s_.running[i].decoding) continue;
      spoken_for += MissingChunks(s_.running[i], int64_t{s_.running[i].runnable_tokens} + 1) -
                    running_[i].chunks;
    }
    // The oldest first as long as they have waited for too long to be overtaken.
    const bool fcfs = s_.limits.policy == Policy::kFcfs;
    const int64_t longest_wait = fcfs ? s_.limits.grouping_delay_steps : s_.limits.ageing_steps;
    size_t aged = 0;
    for (; aged < s_.waiting.size(); ++aged) {
      if (!MayGoOn()) return;
      const WaitingEntry& entry = s_.waiting[aged];
      if (s_.step - entry.since_step < longest_wait) break;
      if (!Held(entry) && !AdmitOne(entry, spoken_for)) return;
    }
    if (fcfs) {
      AdmitInOrder(aged, spoken_for);
    } else {
      AdmitByRank(aged, spoken_for);
    }
  }

  void AdmitInOrder(size_t begin, int32_t spoken_for) {
    constexpr size_t kGroupingWindow = 256;  // sequences looked at for those that share
    const size_t window = std::min(s_.waiting.size(), begin + kGroupingWindow);
    for (size_t i = begin; i < window; ++i) {
      const WaitingEntry& entry = s_.waiting[i];
      if (!entry.shares_running || Held(entry)) continue;
      if (!MayGoOn() || !AdmitOne(entry, spoken_for)) return;
    }
    for (size_t i = begin; i < s_.waiting.size(); ++i) {
      const WaitingEntry& entry = s_.waiting[i];
      if ((entry.shares_running && i < window) || Held(entry)) continue;
      if (!MayGoOn() || !AdmitOne(entry, spoken_for)) return;
    }
  }

  void AdmitByRank(size_t begin, int32_t spoken_for) {
    struct Candidate {
      int32_t rank;
      size_t index;                                   // ascends with age
      bool operator<(const Candidate& other) const {  // a heap has its largest on top
        return rank != other.rank ? rank > other.rank : index > other.index;
      }
    };
    std::vector<Candidate> candidates;
    candidates.reserve(s_.waiting.size() - begin);
    const bool by_priority = s_.limits.policy == Policy::kPriority;
    for (size_t i = begin; i < s_.waiting.size(); ++i) {
      const WaitingEntry& entry = s_.waiting[i];
      if (entry.held) continue;
      candidates.push_back({by_priority ? entry.priority : -entry.shared_tokens, i});
    }
    std::make_heap(candidates.begin(), candidates.end());
    for (; !candidates.empty() && MayGoOn(); candidates.pop_back()) {
      std::pop_heap(candidates.begin(), candidates.end());
      const WaitingEntry& entry = s_.waiting[candidates.back().index];
      if (!Held(entry) && !AdmitOne(entry, spoken_for)) return;
    }
  }

  const SchedulerSnapshot& s_;
  int32_t budget_tokens_;
  int32_t free_chunks_;
  std::vector<Share> running_;             // by index into s_.running
  int32_t alive_;                          // running and not preempted, and admitted
  absl::flat_hash_set<uint64_t> claimed_;  // chunks that sequences admitted here will compute
  StepPlan plan_;
};

}  // namespace

std::string StepPlan::ToString() const {
  return absl::StrCat("preempt [", absl::StrJoin(preempt, " ", AppendId), "] admit [",
                      absl::StrJoin(admit, " ", AppendId), "] work [",
                      absl::StrJoin(work, " ",
                                    [](std::string* out, const StepWork& w) {
                                      AppendId(out, w.sequence);
                                      absl::StrAppend(out, ":", w.num_tokens);
                                    }),
                      "]");
}

StepPlan Plan(const SchedulerSnapshot& snapshot) { return Planner(snapshot).Run(); }

}  // namespace refrain::engine
