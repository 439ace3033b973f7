#include "engine/scheduler.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

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
    return std::max(0, ChunksFor(entry.appended_tokens + tokens) -
                           entry.reserved_tokens / s_.limits.chunk_tokens);
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

  // Preempts others until sequence i can have `tokens` more, or itself when nothing else is left.
  bool MakeRoom(size_t i, int32_t tokens) {
    while (MissingChunks(s_.running[i], tokens) > free_chunks_) {
      const size_t victim = Victim();
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

  void PlanPrefills() {
    std::optional<size_t> stuck;
    bool any_work = std::any_of(running_.begin(), running_.end(),
                                [](const Share& share) { return share.tokens > 0; });
    for (size_t i = 0; i < running_.size() && budget_tokens_ > 0; ++i) {
      const RunningEntry& entry = s_.running[i];
      if (running_[i].preempted || entry.decoding || entry.runnable_tokens == 0) continue;
      const int64_t room = int64_t{entry.reserved_tokens} - entry.appended_tokens +
                           int64_t{std::max(0, free_chunks_)} * s_.limits.chunk_tokens;
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

  // Indexes of the `most` waiting sequences that are next in the policy's order.
  std::vector<size_t> NextWaiting(size_t most) const {
    most = std::min(most, s_.waiting.size());
    std::vector<size_t> order(most);
    if (s_.limits.policy == Policy::kFcfs) {
      std::iota(order.begin(), order.end(), size_t{0});
      return order;
    }
    struct Candidate {
      int32_t rank;
      size_t index;  // ascends with age
      bool operator<(const Candidate& other) const {
        return rank != other.rank ? rank < other.rank : index < other.index;
      }
    };
    std::vector<Candidate> candidates;
    candidates.reserve(s_.waiting.size());
    for (const WaitingEntry& entry : s_.waiting) {
      const bool by_priority = s_.limits.policy == Policy::kPriority;
      candidates.push_back(
          {by_priority ? entry.priority : -entry.shared_tokens, candidates.size()});
    }
    const auto end = candidates.begin() + static_cast<ptrdiff_t>(most);
    if (end != candidates.end()) std::nth_element(candidates.begin(), end, candidates.end());
    std::sort(candidates.begin(), end);
    std::transform(candidates.begin(), end, order.begin(),
                   [](const Candidate& candidate) { return candidate.index; });
    return order;
  }

  void Admit() {
    const int32_t slots = s_.limits.max_sequences - alive_;
    if (slots <= 0 || budget_tokens_ <= 0 || s_.waiting.empty()) return;
    int32_t spoken_for = 0;  // free chunks that running prefills will need, and a margin
    for (size_t i = 0; i < running_.size(); ++i) {
      if (s_.running[i].decoding) continue;
      spoken_for += MissingChunks(s_.running[i], int64_t{s_.running[i].runnable_tokens} + 1) -
                    running_[i].chunks;
    }
    for (const size_t next : NextWaiting(static_cast<size_t>(std::min(slots, budget_tokens_)))) {
      if (budget_tokens_ <= 0) return;
      const WaitingEntry& entry = s_.waiting[next];
      const int32_t shared_chunks = entry.shared_tokens / s_.limits.chunk_tokens;
      const int32_t chunks = ChunksFor(int64_t{entry.prefill_tokens} + 1) - shared_chunks;
      const int32_t margin = (alive_ + 3) / 4;
      if (chunks + margin + spoken_for > free_chunks_ && alive_ > 0) return;
      const int32_t tokens = std::min({entry.prefill_tokens - entry.shared_tokens, budget_tokens_,
                                       free_chunks_ * s_.limits.chunk_tokens});
      if (tokens <= 0) return;
      free_chunks_ -= chunks;
      budget_tokens_ -= tokens;
      ++alive_;
      plan_.admit.push_back(entry.sequence);
      plan_.work.push_back({entry.sequence, tokens});
    }
  }

  const SchedulerSnapshot& s_;
  int32_t budget_tokens_;
  int32_t free_chunks_;
  std::vector<Share> running_;  // by index into s_.running
  int32_t alive_;               // running and not preempted, and admitted
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
