#include "engine/scheduler.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace refrain::engine {
namespace {

void AppendId(std::string* out, SequenceId id) { absl::StrAppend(out, static_cast<uint64_t>(id)); }

// The order in which the waiting sequences, all or some of them, may be admitted:
//   first those that have waited too long to be overtaken, the oldest first;
//   then under kFcfs those among the next kGroupingWindow that share with running ones, then the
//   others by age; under the other policies by rank, then age.
class AdmissionOrder {
 public:
  // `some`: of snapshot.waiting, in its order; null = all. Both outlive it.
  AdmissionOrder(const SchedulerSnapshot& snapshot, const std::vector<const WaitingEntry*>* some)
      : s_(snapshot), some_(some), fcfs_(snapshot.limits.policy == Policy::kFcfs) {}

  // Null when all have been named.
  const WaitingEntry* Next() {
    if (!aged_over_) {
      const int64_t longest_wait = fcfs_ ? s_.limits.grouping_delay_steps : s_.limits.ageing_steps;
      if (begin_ < size() && s_.step - entry(begin_).since_step >= longest_wait) {
        return &entry(begin_++);
      }
      aged_over_ = true;
      sharing_ = others_ = begin_;
      window_ = std::min(size(), begin_ + kGroupingWindow);
    }
    return fcfs_ ? NextByAge() : NextByRank();
  }

 private:
  static constexpr size_t kGroupingWindow = 256;  // sequences looked at for those that share

  // A sequence's rank, then its position, which ascends with age: the least comes first.
  using Key = uint64_t;
  static constexpr size_t kFirstBest = 64;  // kept of the first look at all; each later one, twice

  size_t size() const { return some_ != nullptr ? some_->size() : s_.waiting.size(); }
  const WaitingEntry& entry(size_t position) const {
    return some_ != nullptr ? *(*some_)[position] : s_.waiting[position];
  }

  const WaitingEntry* NextByAge() {
    while (sharing_ < window_) {
      const size_t position = sharing_++;
      if (entry(position).shares_running) return &entry(position);
    }
    while (others_ < size()) {
      const size_t position = others_++;
      if (position >= window_ || !entry(position).shares_running) return &entry(position);
    }
    return nullptr;
  }

  Key KeyOf(const WaitingEntry& one, size_t position) const {
    const int32_t rank = s_.limits.policy == Policy::kPriority ? one.priority : -one.shared_tokens;
    return uint64_t{static_cast<uint32_t>(rank) ^ (uint32_t{1} << 31)} << 32 | position;
  }

  // The best of those not yet named. Few of the many that wait are admitted, so that keeping the
  // best of one look at all costs less than ordering all.
  void FindBest() {
    const auto look_at = [this](const WaitingEntry& one, size_t position) {
      if (one.held) return;
      const Key key = KeyOf(one, position);
      if (key < next_key_ || (best_.size() == num_best_ && key > best_.front())) return;
      if (best_.size() == num_best_) {
        std::pop_heap(best_.begin(), best_.end());
        best_.pop_back();
      }
      best_.push_back(key);
      std::push_heap(best_.begin(), best_.end());
    };
    if (some_ == nullptr) {
      size_t position = begin_;
      for (auto one = s_.waiting.begin() + static_cast<ptrdiff_t>(begin_); one != s_.waiting.end();
           ++one) {
        look_at(*one, position++);
      }
    } else {
      for (size_t position = begin_; position < size(); ++position) {
        look_at(entry(position), position);
      }
    }
    num_best_ *= 2;
    std::sort(best_.begin(), best_.end(), std::greater<Key>());
  }

  const WaitingEntry* NextByRank() {
    if (best_.empty()) FindBest();
    if (best_.empty()) return nullptr;
    const Key key = best_.back();
    best_.pop_back();
    next_key_ = key + 1;
    return &entry(static_cast<uint32_t>(key));
  }

  const SchedulerSnapshot& s_;
  const std::vector<const WaitingEntry*>* const some_;
  const bool fcfs_;
  bool aged_over_ = false;
  size_t begin_ = 0;              // the first one that has not aged
  size_t window_ = 0;             // kFcfs: end of those looked at for sharing
  size_t sharing_ = 0;            // kFcfs: next to be looked at for sharing
  size_t others_ = 0;             // kFcfs: next by age
  std::vector<Key> best_;         // other policies: those to be named next, the best last
  size_t num_best_ = kFirstBest;  // other policies: how many the next look keeps
  Key next_key_ = 0;              // other policies: all below have been named
};

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
    // A plan that preempts admits nothing, so there is nothing to share out.
    const bool shared_out = s_.tenants.size() > 1 && plan_.preempt.empty();
    if (shared_out) {
      ShareOut();
    } else {
      PlanPrefills();
    }
    std::vector<StepWork> admitted = std::exchange(plan_.work, {});
    for (size_t i = 0; i < running_.size(); ++i) {
      if (running_[i].tokens > 0)
        plan_.work.push_back({s_.running[i].sequence, running_[i].tokens});
    }
    plan_.work.insert(plan_.work.end(), admitted.begin(), admitted.end());
    if (!shared_out && plan_.preempt.empty()) Admit();
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

  // Gives a running prefill what it can have now: nothing when there is no chunk for it.
  void GivePrefill(size_t i) {
    const RunningEntry& entry = s_.running[i];
    // A part of a chunk that it holds is not its own to write: it will be copied.
    const int64_t chunks =
        entry.reserved_tokens / s_.limits.chunk_tokens + std::max(0, free_chunks_);
    const int64_t room = chunks * s_.limits.chunk_tokens - entry.next_token;
    const int32_t tokens = static_cast<int32_t>(
        std::min<int64_t>(room, std::min(entry.runnable_tokens, budget_tokens_)));
    if (tokens > 0) Give(i, tokens);
  }

  bool AnyWork() const {
    return std::any_of(running_.begin(), running_.end(),
                       [](const Share& share) { return share.tokens > 0; });
  }

  void PlanPrefills() {
    for (const size_t i : PrefillOrder()) {
      if (budget_tokens_ <= 0) break;
      if (!running_[i].preempted) GivePrefill(i);
    }
    if (!AnyWork()) GoOnWithFirstPrefill();
  }

  // Half-done prefills that hold all chunks between them: the first goes on.
  void GoOnWithFirstPrefill() {
    if (budget_tokens_ <= 0) return;
    for (const size_t i : PrefillOrder()) {
      if (running_[i].preempted) continue;
      if (MakeRoom(i, 1)) Give(i, 1);
      return;
    }
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

  // Free chunks that running prefills will need beyond what this plan gives them.
  int32_t SpokenForBy(size_t i) const {
    const RunningEntry& entry = s_.running[i];
    if (entry.decoding) return 0;
    return MissingChunks(entry, int64_t{entry.runnable_tokens} + 1) - running_[i].chunks;
  }

  int32_t SpokenFor() const {
    int32_t chunks = 0;
    for (size_t i = 0; i < running_.size(); ++i) chunks += SpokenForBy(i);
    return chunks;
  }

  void Admit() {
    if (!MayGoOn() || s_.waiting.empty()) return;
    const int32_t spoken_for = SpokenFor();
    AdmissionOrder order(s_, nullptr);
    while (MayGoOn()) {
      const WaitingEntry* next = order.Next();
      if (next == nullptr) return;
      if (!Held(*next) && !AdmitOne(*next, spoken_for)) return;
    }
  }

  // --- several tenants ---

  // What one tenant could have next.
  struct Lane {
    explicit Lane(const SchedulerSnapshot& snapshot) : order(snapshot, &waiting) {}

    int64_t served = 0;
    int32_t running = 0;           // sequences
    std::vector<size_t> prefills;  // into s_.running, in order
    size_t next_prefill = 0;
    std::vector<const WaitingEntry*> waiting;  // oldest first
    AdmissionOrder order;
  };

  std::vector<std::unique_ptr<Lane>> MakeLanes() const {
    std::vector<std::unique_ptr<Lane>> lanes(s_.tenants.size());
    const auto lane_of = [&](int32_t tenant) -> Lane& {
      std::unique_ptr<Lane>& lane = lanes[tenant];
      if (lane == nullptr) {
        lane = std::make_unique<Lane>(s_);
        lane->served = s_.tenants[tenant].served;
      }
      return *lane;
    };
    for (const RunningEntry& entry : s_.running) ++lane_of(entry.tenant).running;
    for (const size_t i : PrefillOrder()) lane_of(s_.running[i].tenant).prefills.push_back(i);
    for (const WaitingEntry& entry : s_.waiting) {
      if (!entry.held) lane_of(entry.tenant).waiting.push_back(&entry);
    }
    return lanes;
  }

  void ShareOut() {
    const std::vector<std::unique_ptr<Lane>> lanes = MakeLanes();
    // The one that has been served least on top; of equals the one that runs least, then the first.
    const auto later = [&](int32_t a, int32_t b) {
      const Lane& x = *lanes[a];
      const Lane& y = *lanes[b];
      return std::tie(x.served, x.running, a) > std::tie(y.served, y.running, b);
    };
    std::vector<int32_t> turns;  // a heap
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i] != nullptr) turns.push_back(static_cast<int32_t>(i));
    }
    std::make_heap(turns.begin(), turns.end(), later);
    int32_t spoken_for = SpokenFor();
    std::optional<int32_t> refused;  // the tenant whose turn it was when nothing fitted
    if (budget_tokens_ <= 0 && !turns.empty() && !lanes[turns.front()]->waiting.empty()) {
      refused = turns.front();
    }
    while (budget_tokens_ > 0 && !turns.empty()) {
      std::pop_heap(turns.begin(), turns.end(), later);
      const int32_t tenant = turns.back();
      Lane& lane = *lanes[tenant];
      const int32_t budget_before = budget_tokens_;
      bool goes_on = true;
      if (lane.next_prefill < lane.prefills.size()) {
        const size_t i = lane.prefills[lane.next_prefill++];
        spoken_for -= SpokenForBy(i);
        GivePrefill(i);
        spoken_for += SpokenForBy(i);
      } else if (refused.has_value()) {
        goes_on = false;
      } else if (const WaitingEntry* next = lane.order.Next(); next == nullptr) {
        goes_on = false;
      } else if (!Held(*next)) {
        if (alive_ >= s_.limits.max_sequences || !AdmitOne(*next, spoken_for)) refused = tenant;
      }
      lane.served += s_.tenants[tenant].CostOf(budget_before - budget_tokens_);
      if (goes_on) {
        std::push_heap(turns.begin(), turns.end(), later);
      } else {
        turns.pop_back();
      }
    }
    if (!AnyWork() && plan_.admit.empty()) {
      GoOnWithFirstPrefill();
    } else if (refused.has_value() && plan_.admit.empty() && lanes[*refused]->running == 0) {
      PreemptForTenant(lanes);
    }
  }

  // Takes the youngest sequence from the tenant that runs most for its weight, if that is more than
  // its part of the slots.
  void PreemptForTenant(const std::vector<std::unique_ptr<Lane>>& lanes) {
    int64_t total_weight = 0;
    std::optional<size_t> most;
    const auto weight = [&](size_t tenant) { return int64_t{s_.tenants[tenant].weight_milli}; };
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i] == nullptr) continue;
      total_weight += weight(i);
      if (lanes[i]->running < 2) continue;
      if (!most.has_value() ||
          lanes[i]->running * weight(*most) > lanes[*most]->running * weight(i)) {
        most = i;
      }
    }
    if (!most.has_value() ||
        lanes[*most]->running * total_weight <= s_.limits.max_sequences * weight(*most)) {
      return;
    }
    for (size_t i = running_.size(); i-- > 0;) {
      if (s_.running[i].tenant == static_cast<int32_t>(*most)) return Preempt(i);
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
