#include "engine/scheduler.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "engine/admission_order.h"
#include "engine/cache_parts.h"
#include "engine/hash_map.h"

namespace refrain::engine {
namespace {

class Planner {
 public:
  explicit Planner(const SchedulerSnapshot& snapshot)
      : s_(snapshot),
        budget_tokens_(snapshot.limits.step_token_budget),
        free_chunks_(snapshot.free_chunks),
        running_(snapshot.running.size()),
        holders_(snapshot.shared_runs.size()),
        alive_(static_cast<int32_t>(snapshot.running.size())),
        order_(snapshot, nullptr, &claimed_) {
    for (size_t run = 0; run < holders_.size(); ++run) {
      holders_[run] = snapshot.shared_runs[run].holders;
    }
  }

  StepPlan Run() {
    PlanDecodes();
    const bool shared_out = s_.tenants.size() > 1;
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
    if (!shared_out) Admit();
    return std::move(plan_);
  }

  // Whom chunks are taken from first, of those that are not preempted.
  size_t Victim() const {
    if (s_.tenants.size() > 1) {
      const CacheParts parts = Parts();
      const std::optional<size_t> over = parts.TenantOverPart();
      if (over.has_value()) return parts.First(*over);
    }
    size_t youngest = running_.size() - 1;
    while (running_[youngest].preempted) --youngest;
    return LeastUrgentOf(s_.running[youngest].tenant);
  }

 private:
  struct Share {
    int32_t tokens = 0;
    int32_t chunks = 0;  // taken from the free ones for `tokens`
    bool preempted = false;
  };

  // The youngest of a tenant's that are not preempted, under kPriority of those of its lowest
  // priority: what clients say of theirs counts among the sequences of one tenant only.
  size_t LeastUrgentOf(int32_t tenant) const {
    std::optional<size_t> least;
    for (size_t i = running_.size(); i-- > 0;) {
      const RunningEntry& entry = s_.running[i];
      if (running_[i].preempted || entry.tenant != tenant) continue;
      if (s_.limits.policy != Policy::kPriority) return i;
      if (!least.has_value() || entry.priority > s_.running[*least].priority) least = i;
    }
    return *least;
  }

  int32_t ChunksFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + s_.limits.chunk_tokens - 1) / s_.limits.chunk_tokens);
  }

  // Chunks beyond those that the sequence has, to hold `tokens` more.
  int32_t MissingChunks(const RunningEntry& entry, int64_t tokens) const {
    if (entry.replays && tokens <= entry.runnable_tokens) return 0;
    return std::max(
        0, ChunksFor(entry.next_token + tokens) - entry.reserved_tokens / s_.limits.chunk_tokens);
  }

  void Give(size_t i, int32_t tokens) {
    running_[i].tokens = tokens;
    running_[i].chunks = MissingChunks(s_.running[i], tokens);
    budget_tokens_ -= tokens;
    free_chunks_ -= running_[i].chunks;
  }

  void Preempt(size_t i) {
    budget_tokens_ += running_[i].tokens;
    free_chunks_ += running_[i].chunks + s_.running[i].exclusive_chunks;
    ForEachSharedRun(s_, i, [this](int32_t run) {
      if (--holders_[run] == 0) free_chunks_ += s_.shared_runs[run].chunks;
    });
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

  // By age. Under kPriority a tenant's most urgent one takes the first of the places that those of
  // this tenant have by age, and so on: no other tenant's comes later for it.
  std::vector<size_t> PrefillOrder() const {
    std::vector<size_t> order;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (!s_.running[i].decoding && s_.running[i].runnable_tokens > 0) order.push_back(i);
    }
    std::ranges::stable_sort(order, {}, [this](size_t i) { return s_.running[i].age(); });
    if (s_.limits.policy != Policy::kPriority) return order;
    const auto tenant = [this](size_t i) { return s_.running[i].turn_of(); };
    std::vector<size_t> places(order.size());
    std::iota(places.begin(), places.end(), size_t{0});
    std::stable_sort(places.begin(), places.end(),
                     [&](size_t a, size_t b) { return tenant(order[a]) < tenant(order[b]); });
    std::vector<size_t> ranked = order;
    std::stable_sort(ranked.begin(), ranked.end(), [&](size_t a, size_t b) {
      return std::make_pair(tenant(a), s_.running[a].priority) <
             std::make_pair(tenant(b), s_.running[b].priority);
    });
    for (size_t i = 0; i < places.size(); ++i) order[places[i]] = ranked[i];
    return order;
  }

  // Gives a running prefill what it can have now: nothing when there is no chunk for it.
  void GivePrefill(size_t i, int32_t* spoken_for) {
    *spoken_for -= SpokenForBy(i);
    const RunningEntry& entry = s_.running[i];
    // A part of a chunk that it holds is not its own to write: it will be copied.
    const int64_t chunks =
        entry.reserved_tokens / s_.limits.chunk_tokens + std::max(0, free_chunks_);
    const int64_t room =
        entry.replays ? entry.runnable_tokens : chunks * s_.limits.chunk_tokens - entry.next_token;
    const int32_t tokens = static_cast<int32_t>(
        std::min<int64_t>(room, std::min(entry.runnable_tokens, budget_tokens_)));
    if (tokens > 0) Give(i, tokens);
    *spoken_for += SpokenForBy(i);
  }

  bool AnyWork() const {
    return std::ranges::any_of(running_, [](const Share& share) { return share.tokens > 0; });
  }

  void PlanPrefills() {
    int32_t spoken_for = SpokenFor();
    for (const size_t i : PrefillOrder()) {
      if (running_[i].preempted) continue;
      AdmitAgedBefore(i, spoken_for);
      if (budget_tokens_ <= 0) break;
      GivePrefill(i, &spoken_for);
    }
    if (!AnyWork()) GoOnWithFirstPrefill();
  }

  // Those that wait no longer for what is left of prefill i, which is younger.
  void AdmitAgedBefore(size_t i, int32_t spoken_for) {
    while (MayAdmit()) {
      const WaitingEntry* const next = NextAgedBefore(&order_, i);
      if (next == nullptr) return;
      if (!AdmitOne(*next, spoken_for)) some_lacks_ = true;
    }
  }

  const WaitingEntry* NextAgedBefore(AdmissionOrder* order, size_t i) const {
    if (s_.limits.policy != Policy::kFcfs) return nullptr;
    const WaitingEntry* next = order->NextAgedBefore(s_.running[i].age());
    while (next != nullptr && Held(*next)) next = order->NextAgedBefore(s_.running[i].age());
    return next;
  }

  // Half-done prefills that hold all chunks between them: the first goes on. Under kFcfs the one
  // that came first, whatever it lends: Victim takes those that came last.
  void GoOnWithFirstPrefill() {
    if (budget_tokens_ <= 0) return;
    std::vector<size_t> order = PrefillOrder();
    if (s_.limits.policy == Policy::kFcfs) std::ranges::sort(order);
    for (const size_t i : order) {
      if (running_[i].preempted) continue;
      if (MakeRoom(i, 1)) Give(i, 1);
      return;
    }
  }

  // For the growth of those that decode.
  int32_t MarginChunks() const { return (alive_ + 3) / 4; }

  // Tries to start a sequence; false when no other may be tried after it.
  bool AdmitOne(const WaitingEntry& entry, int32_t spoken_for) {
    const int32_t chunks = entry.ChunksToAdmit(s_.limits.chunk_tokens);
    if (chunks + MarginChunks() + spoken_for > free_chunks_ && alive_ > 0) return false;
    // The rest of a part of a chunk is written in a copy, or in the chunk itself, cut, when there
    // is no other.
    const int32_t part_tokens = entry.shared_tokens % s_.limits.chunk_tokens;
    const int32_t own_chunks = std::max(free_chunks_ - entry.idle_chunks, part_tokens > 0 ? 1 : 0);
    const int64_t room =
        int64_t{own_chunks} * s_.limits.chunk_tokens - part_tokens + entry.replayed_tokens;
    const int32_t tokens = static_cast<int32_t>(
        std::min<int64_t>(room, std::min(entry.RowsToAdmit(), budget_tokens_)));
    if (tokens <= 0) return false;
    free_chunks_ -= chunks;
    budget_tokens_ -= tokens;
    ++alive_;
    if (entry.next_chunk_key != 0) claimed_.insert(entry.next_chunk_key);
    plan_.admit.push_back(entry.sequence);
    plan_.work.push_back({entry.sequence, tokens});
    return true;
  }

  bool MayAdmit() const {
    return plan_.preempt.empty() && !some_lacks_ && alive_ < s_.limits.max_sequences &&
           budget_tokens_ > 0;
  }

  // One that another computes a chunk for is passed over, not waited for.
  bool Held(const WaitingEntry& entry) const {
    return entry.held || (entry.next_chunk_key != 0 && claimed_.contains(entry.next_chunk_key));
  }

  // Free chunks that sequence i will take beyond what this plan gives it: with the rest of its
  // prefill and the first token, or with its next token.
  int32_t NextChunks(size_t i) const {
    const RunningEntry& entry = s_.running[i];
    const int64_t tokens = entry.decoding ? int64_t{running_[i].tokens}
                                          : int64_t{entry.runnable_tokens} + entry.later_tokens;
    return MissingChunks(entry, tokens + 1) - running_[i].chunks;
  }

  // Those that running prefills will need.
  int32_t SpokenForBy(size_t i) const { return s_.running[i].decoding ? 0 : NextChunks(i); }

  int32_t SpokenFor() const {
    int32_t chunks = 0;
    for (size_t i = 0; i < running_.size(); ++i) chunks += SpokenForBy(i);
    return chunks;
  }

  PassingRoom RoomToPass(int32_t spoken_for) const {
    return PassingRoom(s_.limits, alive_, int64_t{free_chunks_} - MarginChunks() - spoken_for);
  }

  void Admit() {
    if (!MayAdmit() || s_.waiting.empty()) return;
    const int32_t spoken_for = SpokenFor();
    order_.set_passing_room(RoomToPass(spoken_for));
    while (MayAdmit()) {
      const WaitingEntry* next = order_.Next();
      if (next == nullptr) return;
      if (!Held(*next) && !AdmitOne(*next, spoken_for)) return;
    }
  }

  // --- several tenants ---

  // What one tenant could have next.
  struct Lane {
    Lane(const SchedulerSnapshot& snapshot, const HashSet<uint64_t>& claimed)
        : order(snapshot, &waiting, &claimed) {}

    bool runs() const { return running + admitted > 0; }

    int64_t served = 0;
    int32_t running = 0;           // sequences, as the plan began
    int32_t admitted = 0;          // by this plan
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
        lane = std::make_unique<Lane>(s_, claimed_);
        lane->served = s_.tenants[tenant].served;
        lane->waiting.reserve(s_.waiting.size() / lanes.size() + 1);  // as if they were alike
      }
      return *lane;
    };
    for (const RunningEntry& entry : s_.running) ++lane_of(entry.tenant).running;
    for (const size_t i : PrefillOrder()) {
      if (!running_[i].preempted) lane_of(s_.running[i].turn_of()).prefills.push_back(i);
    }
    for (const WaitingEntry& entry : s_.waiting) {
      if (!entry.held) lane_of(entry.tenant).waiting.push_back(&entry);
    }
    return lanes;
  }

  // What is passed may come after what other tenants get in between: there has to be room for all.
  void LetThoseThatSharePass(const std::vector<std::unique_ptr<Lane>>& lanes) const {
    if (s_.limits.policy != Policy::kFcfs) return;
    const PassingRoom room = RoomToPass(SpokenFor());
    PassingRoom left = room;
    for (const std::unique_ptr<Lane>& lane : lanes) {
      if (lane == nullptr) continue;
      for (const WaitingEntry* const entry : lane->waiting) {
        if (!left.Take(*entry)) return;
      }
    }
    for (const std::unique_ptr<Lane>& lane : lanes) {
      if (lane != nullptr) lane->order.set_passing_room(room);
    }
  }

  // What tenants did not get in their turns.
  struct Lack {
    std::optional<size_t> prefill;          // the first that got less for want of chunks
    std::optional<int32_t> tenant;          // the first whose next sequence did not fit
    const WaitingEntry* waiting = nullptr;  // that sequence
    bool slot = false;                      // it lacked one, or a row beside those that decode
    bool closed = false;                    // nobody passes it, or nobody more
  };

  void ShareOut() {
    const std::vector<std::unique_ptr<Lane>> lanes = MakeLanes();
    LetThoseThatSharePass(lanes);
    const Lack lack = GiveTurns(lanes);
    if (!plan_.admit.empty()) return;
    if (!AnyWork()) return GoOnWithFirstPrefill();
    const size_t preempted_before = plan_.preempt.size();
    if (lack.prefill.has_value()) {
      FreeChunks(s_.running[*lack.prefill].turn_of(), 0, lack.prefill);
    }
    if (plan_.preempt.size() > preempted_before) return;
    if (!lack.tenant.has_value() || lanes[*lack.tenant]->running > 0) return;
    // Who gave way for the growth of others has left a slot.
    if (lack.slot && plan_.preempt.empty()) FreeSlot(lanes, *lack.tenant);
    if (alive_ < s_.limits.max_sequences) {
      FreeChunks(*lack.tenant, lack.waiting->ChunksToAdmit(s_.limits.chunk_tokens), std::nullopt);
    }
  }

  Lack GiveTurns(const std::vector<std::unique_ptr<Lane>>& lanes) {
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
    Lack lack;
    while (budget_tokens_ <= 0 && lack.waiting == nullptr && !turns.empty()) {
      std::pop_heap(turns.begin(), turns.end(), later);
      lack.waiting = NextOf(*lanes[turns.back()]);
      if (lack.waiting != nullptr) lack.tenant = turns.back();
      lack.slot = true;
      turns.pop_back();
    }
    while (budget_tokens_ > 0 && !turns.empty()) {
      std::pop_heap(turns.begin(), turns.end(), later);
      const int32_t tenant = turns.back();
      Lane& lane = *lanes[tenant];
      const int32_t budget_before = budget_tokens_;
      bool goes_on = true;
      if (const WaitingEntry* const aged = AgedBeforePrefill(&lane, lack); aged != nullptr) {
        AdmitTo(&lane, *aged, spoken_for, &lack);
      } else if (lane.next_prefill < lane.prefills.size()) {
        const size_t i = lane.prefills[lane.next_prefill++];
        GivePrefill(i, &spoken_for);
        const bool all = running_[i].tokens == s_.running[i].runnable_tokens;
        if (!all && budget_tokens_ > 0 && !lack.prefill.has_value()) lack.prefill = i;
      } else {
        goes_on = AdmitNextOf(&lane, spoken_for, &lack);
      }
      lane.served += s_.tenants[tenant].CostOf(budget_before - budget_tokens_);
      if (goes_on) {
        std::push_heap(turns.begin(), turns.end(), later);
      } else {
        turns.pop_back();
      }
    }
    return lack;
  }

  // Starts the next sequence of the tenant whose turn it is; false: it gets none. Behind one that
  // does not fit only those of tenants that run nothing start, and if its own tenant runs
  // something.
  bool AdmitNextOf(Lane* lane, int32_t spoken_for, Lack* lack) {
    if (lack->closed || (lack->tenant.has_value() && lane->runs())) return false;
    const WaitingEntry* const next = NextOf(*lane);
    return next != nullptr && AdmitTo(lane, *next, spoken_for, lack);
  }

  // What the lane starts before it goes on with its next prefill, or null.
  const WaitingEntry* AgedBeforePrefill(Lane* lane, const Lack& lack) const {
    const bool lacks = lack.closed || lack.tenant.has_value() || !MayAdmit();
    if (lacks || lane->next_prefill == lane->prefills.size()) return nullptr;
    return NextAgedBefore(&lane->order, lane->prefills[lane->next_prefill]);
  }

  bool AdmitTo(Lane* lane, const WaitingEntry& next, int32_t spoken_for, Lack* lack) {
    const bool admits = plan_.preempt.empty();
    const bool slot = alive_ < s_.limits.max_sequences;
    if (admits && slot && AdmitOne(next, spoken_for)) {
      ++lane->admitted;
      return true;
    }
    lack->closed = lack->tenant.has_value() || !lane->runs() || !slot || !admits;
    if (!lack->tenant.has_value()) {
      lack->tenant = next.tenant;
      lack->waiting = &next;
      lack->slot = !slot;
    }
    return false;
  }

  // The next that may be admitted, or null.
  const WaitingEntry* NextOf(Lane& lane) const {
    const WaitingEntry* next = lane.order.Next();
    while (next != nullptr && Held(*next)) next = lane.order.Next();
    return next;
  }

  // For `tenant`, which runs nothing. Takes the least urgent sequence from the tenant that runs
  // most for its weight, if that is more than its part of the slots; where each runs one alone, and
  // there are more tenants than slots, one that has had its turn.
  void FreeSlot(const std::vector<std::unique_ptr<Lane>>& lanes, int32_t tenant) {
    int64_t total_weight = 0;
    std::optional<size_t> most;
    const auto weight = [&](size_t i) { return int64_t{s_.tenants[i].weight_milli}; };
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i] == nullptr) continue;
      total_weight += weight(i);
      if (lanes[i]->running < 2) continue;
      if (!most.has_value() ||
          lanes[i]->running * weight(*most) > lanes[*most]->running * weight(i)) {
        most = i;
      }
    }
    const auto over_part = [&](size_t i) {
      return lanes[i]->running * total_weight > s_.limits.max_sequences * weight(i);
    };
    if (most.has_value() && over_part(*most)) {
      return Preempt(LeastUrgentOf(static_cast<int32_t>(*most)));
    }
    std::optional<size_t> last;
    int64_t most_served = lanes[tenant]->served;
    for (size_t i = 0; i < running_.size(); ++i) {
      const RunningEntry& entry = s_.running[i];
      const Lane& lane = *lanes[entry.tenant];
      const bool had_turn =
          entry.decoding && entry.next_token - entry.turn_begin >= s_.limits.turn_tokens;
      if (!had_turn || lane.running > 1 || lane.served <= most_served || !over_part(entry.tenant)) {
        continue;
      }
      last = i;
      most_served = lane.served;
    }
    if (last.has_value()) Preempt(*last);
  }

  // --- several tenants: their parts of the cache ---

  CacheParts Parts() const {
    std::vector<CacheParts::Held> held;
    held.reserve(running_.size());
    for (size_t i = 0; i < running_.size(); ++i) {
      if (running_[i].preempted) continue;
      held.push_back({.index = i,
                      .own_chunks = s_.running[i].exclusive_chunks + running_[i].chunks,
                      .next_chunks = NextChunks(i)});
    }
    return CacheParts(s_, free_chunks_, held, holders_);
  }

  // Takes sequences from other tenants that have more than their parts until `chunks` are free for
  // this one in the next plan, beside what running sequences take there; of those that prefill only
  // `prefill` counts, if given. Takes none if that does not suffice.
  void FreeChunks(int32_t tenant, int32_t chunks, std::optional<size_t> prefill) {
    const auto needed_by = [&](size_t i) {
      const bool counts = !prefill.has_value() || i == *prefill || s_.running[i].decoding;
      return counts ? NextChunks(i) : 0;
    };
    int64_t next_chunks = 0;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (!running_[i].preempted) next_chunks += needed_by(i);
    }
    const auto before = std::make_tuple(running_, holders_, budget_tokens_, free_chunks_, alive_);
    const size_t preempted_before = plan_.preempt.size();
    CacheParts parts = Parts();
    // What is to get them does not give way itself: nobody's last sequence is taken.
    if (prefill.has_value()) parts.PutLast(*prefill);
    while (chunks + next_chunks + MarginChunks() > free_chunks_) {
      const std::optional<size_t> over = parts.TenantOverPart();
      if (!over.has_value() || static_cast<int32_t>(*over) == tenant) {
        std::tie(running_, holders_, budget_tokens_, free_chunks_, alive_) = before;
        plan_.preempt.resize(preempted_before);
        return;
      }
      const size_t victim = parts.TakeFirst(*over);
      next_chunks -= needed_by(victim);
      Preempt(victim);
    }
  }

  const SchedulerSnapshot& s_;
  int32_t budget_tokens_;
  int32_t free_chunks_;
  std::vector<Share> running_;    // by index into s_.running
  std::vector<int32_t> holders_;  // by index into s_.shared_runs: not preempted
  int32_t alive_;                 // running and not preempted, and admitted
  HashSet<uint64_t> claimed_;     // chunks that sequences admitted here will compute
  AdmissionOrder order_;          // one tenant: of all that wait
  bool some_lacks_ = false;       // one tenant: what the first that was not admitted needs
  StepPlan plan_;
};

}  // namespace

StepPlan Plan(const SchedulerSnapshot& snapshot) { return Planner(snapshot).Run(); }

SequenceId FirstToGiveWay(const SchedulerSnapshot& snapshot) {
  return snapshot.running[Planner(snapshot).Victim()].sequence;
}

}  // namespace refrain::engine
