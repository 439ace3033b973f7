#include "kvcache/reuse_rate_policy.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace refrain::kvcache {
namespace {

// A node with more children is a beginning that strangers share.
constexpr int32_t kMaxWays = 8;

constexpr int64_t kGhostsPerChunk = 16;
constexpr int64_t kAlwaysAllowedGhosts = 1 << 20;

// So many requests that joined are told apart until they make a chunk: more than are admitted by
// plans in a row. Some never do.
constexpr size_t kMaxJoined = 256;

// Computing a token costs its matrix products, and attention to all tokens before it: as much again
// behind about 32k tokens (hidden size 4,096; more in smaller models). In few levels, for chunks
// are grouped by it.
constexpr int32_t kTokensPerCostLevel = 16384;
constexpr int kCostLevels = 4;
constexpr double CostOf(int level) { return 1.0 + 0.5 * level; }

enum TailKind { kNoTail, kPromptTail, kGeneratedTail, kTailKinds };

int32_t Group(int32_t class_of, TailKind tail, int cost_level) {
  return (class_of * kTailKinds + tail) * kCostLevels + cost_level;
}

}  // namespace

ReuseRatePolicy::ReuseRatePolicy(int32_t capacity_chunks)
    : max_ghosts_(
          static_cast<size_t>(std::min(kGhostsPerChunk * capacity_chunks,
                                       std::max<int64_t>(capacity_chunks, kAlwaysAllowedGhosts)))) {
  ghosts_.reserve(max_ghosts_ + 1);  // a million of them move for a tenth of a second
}

// --- lineages ---

bool ReuseRatePolicy::Knows(NodeId node) const {
  return static_cast<int32_t>(node) >= 0 && ToIndex(node) < chunks_.size() &&
         chunks_[ToIndex(node)].lineage != kNone;
}

ReuseRatePolicy::LineageId ReuseRatePolicy::NewLineage() {
  LineageId id;
  if (free_lineages_.empty()) {
    id = static_cast<LineageId>(lineages_.size());
    lineages_.emplace_back();
  } else {
    id = free_lineages_.back();
    free_lineages_.pop_back();
    lineages_[static_cast<size_t>(id)] = {};
  }
  Lineage& made = lineages_[static_cast<size_t>(id)];
  made.since = statistics_.now();
  made.class_of = ClassOf(made);
  made.refs = 1;  // the caller's
  return id;
}

void ReuseRatePolicy::Release(LineageId lineage) {
  if (lineage == kNone) return;
  if (--lineages_[static_cast<size_t>(lineage)].refs == 0) free_lineages_.push_back(lineage);
}

void ReuseRatePolicy::Assign(NodeId node, LineageId lineage) {
  ++lineages_[static_cast<size_t>(lineage)].refs;
  Release(std::exchange(Get(node).lineage, lineage));
}

void ReuseRatePolicy::RequestJoined() {
  FinishJoin();
  statistics_.RequestJoined();
  candidates_current_ = false;
  Release(current_);
  current_ = NewLineage();
  Lineage& own = lineages_[static_cast<size_t>(current_)];
  own.goes_on_later = own.may_continue = true;
  ++own.refs;
  joined_.push_back(current_);
  if (joined_.size() > kMaxJoined) TakeFromJoined(joined_.front());
}

void ReuseRatePolicy::TakeFromJoined(LineageId lineage) {
  joined_.erase(std::find(joined_.begin(), joined_.end(), lineage));
  lineages_[static_cast<size_t>(lineage)].goes_on_later = false;
  Release(lineage);
}

void ReuseRatePolicy::Hit(NodeId node) { joining_.push_back(node); }

void ReuseRatePolicy::HitInPart(NodeId node) { joining_in_part_ = node; }

int32_t ReuseRatePolicy::SiblingsOf(const Chunk& chunk) const {
  if (Knows(chunk.parent)) return chunks_[ToIndex(chunk.parent)].children;
  const auto root = root_children_.find(chunk.parent);
  return root == root_children_.end() ? 0 : std::max(root->second.ever, root->second.now);
}

void ReuseRatePolicy::FinishJoin() {
  const NodeId in_part = std::exchange(joining_in_part_, NodeId{-1});
  if (Knows(in_part)) {
    const Chunk& chunk = Get(in_part);
    const int32_t ways = std::max(chunk.children, SiblingsOf(chunk));
    if (ways <= kMaxWays) Continue(current_, chunk.lineage, chunk.is_tail, chunk.reuse, ways);
  }
  if (joining_.empty()) return;
  const NodeId last = joining_.back();
  const Chunk& chunk = Get(last);
  if (!Knows(in_part) && chunk.children <= kMaxWays) {
    Continue(current_, chunk.lineage, chunk.is_tail, chunk.reuse, chunk.children);
  }
  for (const NodeId node : joining_) {
    const bool idle = Get(node).is_idle;
    if (idle) RemoveIdle(node);
    Get(node).is_tail = false;
    Assign(node, current_);
    if (idle) AddIdle(node);
  }
  lineages_[static_cast<size_t>(current_)].end = last;
  lineages_[static_cast<size_t>(current_)].end_was_matched = true;
  joining_.clear();
}

void ReuseRatePolicy::WatchAs(LineageId id, int32_t class_of) {
  Lineage& lineage = lineages_[static_cast<size_t>(id)];
  lineage.since = statistics_.now();
  lineage.class_of = class_of;
  lineage.watch = statistics_.Begin(class_of);
}

int32_t ReuseRatePolicy::ClassOf(const Lineage& lineage) {
  const Turns& turns = lineage.turns[static_cast<size_t>(lineage.answer)];
  return ReuseStatistics::ContinuedClass(lineage.answer, turns.count, turns.interval);
}

void ReuseRatePolicy::CountTurn(int64_t interval, Turns* turns) {
  ++turns->count;
  turns->interval = turns->interval == 0 ? interval : (turns->interval + interval + 1) / 2;
}

void ReuseRatePolicy::Continue(LineageId own_id, LineageId id, bool tail_hit, ReuseClass reuse,
                               int32_t ways) {
  Lineage& own = lineages_[static_cast<size_t>(own_id)];
  if (!own.may_continue || own.abandoned || id == own_id) return;
  Lineage& old = lineages_[static_cast<size_t>(id)];
  // Its sequence still runs: who joins it goes on beside it, from what they have in common.
  if (!old.watch && !old.abandoned) return;
  own.may_continue = false;
  const int64_t interval = std::max<int64_t>(statistics_.now() - old.since, 1);
  statistics_.Continued(*old.watch, old.class_of, old.since);
  statistics_.TailSeen(reuse == ReuseClass::kGenerated, tail_hit);
  own.turns = old.turns;
  CountTurn(interval, &own.turns[static_cast<size_t>(AnswerEnd::kOther)]);
  if (old.answer != AnswerEnd::kOther) {
    CountTurn(interval, &own.turns[static_cast<size_t>(old.answer)]);
  }
  StopWatching(&own);  // it may have left before, and run again
  own.class_of = ClassOf(own);

  const bool moves = Knows(old.idle) && Get(old.idle).lineage == id && Get(old.idle).is_idle;
  if (moves) RemoveIdle(old.idle);
  WatchAs(id, old.abandoned ? old.class_of : ReuseStatistics::AbandonedClass(ways));
  old.abandoned = true;
  if (moves) AddIdle(old.idle);
}

void ReuseRatePolicy::StopWatching(Lineage* lineage) {
  if (!lineage->watch) return;
  statistics_.Withdraw(*lineage->watch, lineage->class_of, lineage->since);
  lineage->watch.reset();
}

void ReuseRatePolicy::Leaving(NodeId node, AnswerEnd answer) {
  FinishJoin();
  if (!Knows(node)) return;
  const LineageId id = Get(node).lineage;
  Lineage& lineage = lineages_[static_cast<size_t>(id)];
  if (lineage.goes_on_later) TakeFromJoined(id);
  if (lineage.abandoned) return;
  // Said by one that holds nothing of its own, of another's.
  if (lineage.answer != AnswerEnd::kOther && answer == AnswerEnd::kOther) return;
  StopWatching(&lineage);  // it may have left before, and run again
  lineage.answer = answer;
  WatchAs(id, ClassOf(lineage));
}

bool ReuseRatePolicy::GoesOnAt(const Lineage& lineage, NodeId parent) const {
  if (lineage.end == (Knows(parent) ? parent : NodeId{-1})) return true;
  // A part-full chunk that was matched may be copied: the copy stands beside it.
  if (!lineage.end_was_matched || !Knows(lineage.end)) return false;
  const Chunk& end = chunks_[ToIndex(lineage.end)];
  return end.lineage_hash == 0 && end.parent == parent;
}

ReuseRatePolicy::LineageId ReuseRatePolicy::LineageOfChild(NodeId parent) {
  const auto takes = [&](LineageId candidate) {
    Lineage& lineage = lineages_[static_cast<size_t>(candidate)];
    if (!GoesOnAt(lineage, parent)) return false;
    ++lineage.refs;
    return true;
  };
  const LineageId of_parent = Knows(parent) ? Get(parent).lineage : kNone;
  if (of_parent != kNone && !lineages_[static_cast<size_t>(of_parent)].goes_on_later &&
      takes(of_parent)) {
    return of_parent;
  }
  // Requests that joined one after the other may stand at the same node, and have nothing yet by
  // which to tell them apart: each that goes on takes one of their lineages along.
  for (size_t i = joined_.size(); i-- > 0;) {
    const LineageId candidate = joined_[i];
    if (!takes(candidate)) continue;
    TakeFromJoined(candidate);
    return candidate;
  }
  return NewLineage();  // one that has joined before, and goes on beside others
}

// --- life of a chunk ---

void ReuseRatePolicy::Inserted(NodeId node, const ChunkTraits& traits) {
  FinishJoin();
  if (ToIndex(node) >= chunks_.size()) chunks_.resize(ToIndex(node) + 1);
  Chunk& chunk = Get(node);
  chunk = {.lineage_hash = traits.lineage_hash,
           .parent = traits.parent,
           .cost = static_cast<uint8_t>(
               std::min(traits.depth_tokens / kTokensPerCostLevel, kCostLevels - 1)),
           .reuse = traits.reuse};
  const LineageId lineage = LineageOfChild(traits.parent);
  Assign(node, lineage);
  lineages_[static_cast<size_t>(lineage)].end = node;
  lineages_[static_cast<size_t>(lineage)].end_was_matched = false;
  Release(lineage);

  if (!Knows(traits.parent)) ++root_children_[traits.parent].now;
  if (!TakeGhost(node)) CountChild(traits.parent, 1);
}

void ReuseRatePolicy::Changed(NodeId node, const ChunkTraits& traits) {
  FinishJoin();
  const bool was_full = std::exchange(Get(node).lineage_hash, traits.lineage_hash) != 0;
  // A prompt's chunk may come in two pieces: only now is it seen that it comes again.
  if (!was_full && TakeGhost(node)) CountChild(Get(node).parent, -1);
}

void ReuseRatePolicy::CountChild(NodeId parent, int32_t by) {
  int32_t& children = Knows(parent) ? Get(parent).children : root_children_[parent].ever;
  children += by;
}

bool ReuseRatePolicy::TakeGhost(NodeId node) {
  Chunk& chunk = Get(node);
  if (chunk.lineage_hash == 0) return false;
  const auto ghost = ghosts_.find(chunk.lineage_hash);
  if (ghost == ghosts_.end()) return false;
  const Ghost known = ghost->second;
  ghosts_.erase(ghost);
  chunk.children = known.children;
  if (known.children <= kMaxWays) {
    Continue(chunk.lineage, known.lineage, known.is_tail, chunk.reuse, known.children);
  }
  Release(known.lineage);
  return true;
}

void ReuseRatePolicy::Idle(NodeId node) {
  FinishJoin();
  if (Get(node).children == 0) Get(node).is_tail = true;
  lineages_[static_cast<size_t>(Get(node).lineage)].idle = node;
  AddIdle(node);
}

void ReuseRatePolicy::Busy(NodeId node) {
  FinishJoin();
  RemoveIdle(node);
}

void ReuseRatePolicy::Evicted(NodeId node) {
  FinishJoin();
  LeaveGhost(Get(node));
  Forget(node);
}

void ReuseRatePolicy::Dropped(NodeId node) {
  FinishJoin();
  // Nobody can come back for a lineage of which nothing is left, not even a ghost.
  const LineageId id = Get(node).lineage;
  Lineage& lineage = lineages_[static_cast<size_t>(id)];
  const int32_t refs_but_chunks = (id == current_ ? 1 : 0) + (lineage.goes_on_later ? 1 : 0);
  if (lineage.refs == 1 + refs_but_chunks) StopWatching(&lineage);
  Forget(node);
}

void ReuseRatePolicy::Forget(NodeId node) {
  RemoveIdle(node);
  Release(std::exchange(Get(node).lineage, kNone));
  const auto root = root_children_.find(Get(node).parent);
  if (root != root_children_.end() && --root->second.now == 0) root_children_.erase(root);
}

void ReuseRatePolicy::LeaveGhost(const Chunk& chunk) {
  if (chunk.lineage_hash == 0) return;
  const Ghost ghost{chunk.lineage, chunk.children, chunk.is_tail, ++ghosts_made_};
  ++lineages_[static_cast<size_t>(chunk.lineage)].refs;
  const auto [place, is_new] = ghosts_.try_emplace(chunk.lineage_hash, ghost);
  if (!is_new) Release(std::exchange(place->second, ghost).lineage);
  ghost_order_.emplace_back(ghost.number, chunk.lineage_hash);
  while (ghost_order_.size() > max_ghosts_) {
    const auto [number, hash] = ghost_order_.front();
    ghost_order_.pop_front();
    const auto found = ghosts_.find(hash);
    if (found == ghosts_.end() || found->second.number != number) continue;
    Release(found->second.lineage);
    ghosts_.erase(found);
  }
}

// --- idle chunks ---

void ReuseRatePolicy::AddIdle(NodeId node) {
  Chunk& chunk = Get(node);
  const Lineage& lineage = lineages_[static_cast<size_t>(chunk.lineage)];
  const TailKind tail = !chunk.is_tail                          ? kNoTail
                        : chunk.reuse == ReuseClass::kGenerated ? kGeneratedTail
                                                                : kPromptTail;
  assert(!chunk.is_idle);
  chunk.is_idle = true;
  chunk.group = Group(lineage.class_of, tail, chunk.cost);
  chunk.idle_since = lineage.since;
  const IdleKey key{chunk.group, chunk.idle_since, node};
  idle_.insert(key);
  if (candidates_current_) PushCandidate(key);
}

void ReuseRatePolicy::RemoveIdle(NodeId node) {
  Chunk& chunk = Get(node);
  assert(chunk.is_idle);
  chunk.is_idle = false;
  idle_.erase({chunk.group, chunk.idle_since, node});
}

double ReuseRatePolicy::Rate(const IdleKey& key) const {
  const int cost_level = key.group % kCostLevels;
  const int tail = key.group / kCostLevels % kTailKinds;
  const int class_of = key.group / kCostLevels / kTailKinds;
  const int bucket = ReuseStatistics::Bucket(statistics_.now() - key.since);
  const double share = tail == kNoTail ? 1 : statistics_.TailShare(tail == kGeneratedTail);
  return statistics_.Rate(class_of, bucket) * share * CostOf(cost_level);
}

void ReuseRatePolicy::PushCandidate(const IdleKey& key) {
  candidates_.push_back({Rate(key), key});
  std::push_heap(candidates_.begin(), candidates_.end());
}

void ReuseRatePolicy::PushNextLike(const IdleKey& key) {
  const auto next = idle_.upper_bound(key);
  const int64_t now = statistics_.now();
  if (next != idle_.end() && next->group == key.group &&
      ReuseStatistics::Bucket(now - next->since) == ReuseStatistics::Bucket(now - key.since)) {
    PushCandidate(*next);
  }
}

void ReuseRatePolicy::CollectCandidates() {
  candidates_.clear();
  const int64_t now = statistics_.now();
  for (auto next = idle_.begin(); next != idle_.end();) {
    candidates_.push_back({Rate(*next), *next});
    const int bucket = ReuseStatistics::Bucket(now - next->since);
    const int64_t younger = bucket == 0 ? std::numeric_limits<int64_t>::max()
                                        : now - ReuseStatistics::BucketBegin(bucket) + 1;
    next = idle_.lower_bound({next->group, younger, NodeId{std::numeric_limits<int32_t>::min()}});
  }
  std::make_heap(candidates_.begin(), candidates_.end());
  candidates_current_ = true;
}

std::optional<NodeId> ReuseRatePolicy::Victim() {
  FinishJoin();
  if (idle_.empty()) return std::nullopt;
  if (!candidates_current_) CollectCandidates();
  for (;;) {
    assert(!candidates_.empty());
    const IdleKey key = candidates_.front().key;
    if (idle_.contains(key)) return key.node;
    // With all its copies, each of which would push the next one again: as many as were evicted.
    do {
      std::pop_heap(candidates_.begin(), candidates_.end());
      candidates_.pop_back();
    } while (!candidates_.empty() && candidates_.front().key == key);
    PushNextLike(key);
  }
}

}  // namespace refrain::kvcache
