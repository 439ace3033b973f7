#include "kvcache/cache_manager.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"

namespace refrain::kvcache {
namespace {

// Where more chunks than these may begin alike, as those do in which a chat template's header ends,
// who waits for their first tokens awaits none of them: each of those that wait would have another
// one spared, and who comes will find them in whatever is left.
constexpr size_t kFewAlike = 4;

int32_t ChunksFor(int32_t tokens, int32_t chunk_tokens) {
  return tokens <= 0 ? 0 : (tokens - 1) / chunk_tokens + 1;
}

absl::Status OutOfRange(const char* name, int32_t value) {
  return absl::InvalidArgumentError(
      absl::StrCat("KV cache: ", name, " is ", value, ", must be at least 1"));
}

// Of what a match found and is still there. A node whose stamp is the same keeps all before it, and
// none of those can be cut.
NodeId LastWholeNodeOrNone(const PrefixTree& tree, const MatchResult& match) {
  if (match.node_stamp == 0 || match.node_stamp != tree.NodeStamp(match.node)) return kNoNode;
  const PrefixTree::Node& last = tree.node(match.node);
  if (last.is_root()) return match.node;
  const bool whole = tree.IsFull(match.node) && match.num_tokens == last.end_tokens();
  return whole ? match.node : last.parent;
}

// Of the sequence whose tokens were matched: a chunk that agrees in its first ones is another's.
NodeId LastOwnNode(const PrefixTree& tree, const PrefixTree::PrefixMatch& found) {
  const PrefixTree::Node& last = tree.node(found.node);
  const bool whole = last.is_root() || found.num_tokens == last.end_tokens();
  return whole ? found.node : last.parent;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CacheManager>> CacheManager::Create(const CacheOptions& options,
                                                                   ChunkMover* mover) {
  auto policy = MakeEvictionPolicy(options.eviction, options.num_chunks);
  if (!policy.ok()) return policy.status();
  return Create(options, mover, *std::move(policy));
}

absl::StatusOr<std::unique_ptr<CacheManager>> CacheManager::Create(
    const CacheOptions& options, ChunkMover* mover, std::unique_ptr<EvictionPolicy> policy) {
  if (options.num_chunks < 1) return OutOfRange("num_chunks", options.num_chunks);
  if (options.max_slots < 1) return OutOfRange("max_slots", options.max_slots);
  if (options.chunk_tokens < 1) return OutOfRange("chunk_tokens", options.chunk_tokens);
  std::unique_ptr<CacheManager> manager(new CacheManager(options, mover, std::move(policy)));
  if (manager->positions_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("KV cache: no memory for the positions of ", options.num_chunks, " chunks"));
  }
  return manager;
}

CacheManager::CacheManager(const CacheOptions& options, ChunkMover* mover,
                           std::unique_ptr<EvictionPolicy> policy)
    : options_(options),
      mover_(mover),
      cache_(options.num_chunks, options.chunk_tokens, options.hash_mask, options.prefix_cache,
             std::move(policy)),
      positions_(static_cast<int32_t*>(std::calloc(num_positions(), sizeof(int32_t)))),
      slot_taken_(static_cast<size_t>(options.max_slots), false) {}

// --- queries ---

PrefixTree::PrefixMatch CacheManager::FindAgain(const MatchResult& before,
                                                const Namespace& name_space,
                                                const TokenSpan& tokens) const {
  NodeId from = LastWholeNodeOrNone(tree(), before);
  if (from == kNoNode) from = tree().FindRootOrNone(name_space);
  return from == kNoNode ? PrefixTree::PrefixMatch() : tree().Match(from, tokens);
}

MatchResult CacheManager::MatchAgain(const MatchResult& before, const Namespace& name_space,
                                     const TokenSpan& tokens) const {
  const PrefixTree::PrefixMatch found = FindAgain(before, name_space, tokens);
  if (found.node == kNoNode) return {.stamp = tree().roots_stamp()};
  MatchResult match{.num_tokens = found.num_tokens,
                    .node = found.node,
                    .end = found.end,
                    .stamp = tree().MatchStamp(found),
                    .node_stamp = tree().NodeStamp(found.node)};
  CountIdleAgain(&match);
  return match;
}

bool CacheManager::IsCurrent(const MatchResult& match) const {
  if (match.stamp == 0) return false;
  if (match.node == kNoNode) return match.stamp == tree().roots_stamp();
  return match.stamp == tree().MatchStamp({match.node, match.num_tokens, match.end});
}

void CacheManager::CountIdleAgain(MatchResult* match) const {
  if (match->use_stamp == cache_.use_stamp()) return;
  match->use_stamp = cache_.use_stamp();
  match->idle_chunks = match->unused_chunks = 0;
  // Who holds or pins a node does so with all before it.
  bool pinned = false;
  for (NodeId id = match->node; id != kNoNode; ++match->unused_chunks) {
    const PrefixTree::Node& node = tree().node(id);
    if (node.is_root() || node.use.refs > 0) break;
    pinned = pinned || node.use.pins > 0;
    if (!pinned) ++match->idle_chunks;
    id = node.parent;
  }
}

CacheStats CacheManager::stats() const {
  const ChunkPool& pool = cache_.pool();
  CacheStats now = totals_;
  now.total_chunks = pool.total_chunks();
  now.free_chunks = pool.free_chunks();
  now.cached_chunks = cache_.cached_chunks();
  now.used_chunks = now.total_chunks - now.free_chunks - now.cached_chunks;
  now.touched_chunks = pool.touched_chunks();
  now.sequences = static_cast<int32_t>(sequences_.size());
  now.chunk_tokens = options_.chunk_tokens;
  now.evicted_chunks_total = cache_.evicted_chunks_total();
  return now;
}

int32_t CacheManager::reserved_tokens(SequenceId sequence) const {
  const Sequence& of = Get(sequence);
  if (of.tail == Sequence::Tail::kPart) return of.published_tokens;
  return WriteBegin(of) + static_cast<int32_t>(WritableChunks(of)) * options_.chunk_tokens;
}

const CacheManager::Sequence& CacheManager::Get(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  assert(found != sequences_.end());
  return found->second;
}

CacheManager::Sequence& CacheManager::Get(SequenceId sequence) {
  return const_cast<Sequence&>(std::as_const(*this).Get(sequence));
}

std::span<int32_t> CacheManager::PositionsOf(ChunkId chunk) {
  const size_t c = static_cast<size_t>(options_.chunk_tokens);
  return {positions_.get() + ToIndex(chunk) * c, c};
}

int32_t CacheManager::WriteBegin(const Sequence& sequence) const {
  if (sequence.path.empty()) return 0;
  const PathEntry& last = sequence.path.back();
  if (sequence.tail != Sequence::Tail::kWhole) return last.key_begin;
  return last.key_begin + options_.chunk_tokens;
}

size_t CacheManager::WritableChunks(const Sequence& sequence) const {
  return sequence.reserved.size() + (sequence.tail == Sequence::Tail::kWritten ? 1 : 0);
}

ChunkId CacheManager::WritableChunk(const Sequence& sequence, size_t index) const {
  if (sequence.tail != Sequence::Tail::kWritten) return sequence.reserved[index];
  return index == 0 ? sequence.path.back().chunk : sequence.reserved[index - 1];
}

size_t CacheManager::UsedReserved(const Sequence& sequence) const {
  if (sequence.tail == Sequence::Tail::kPart) return 0;
  const int32_t used =
      ChunksFor(sequence.appended_tokens - WriteBegin(sequence), options_.chunk_tokens);
  return static_cast<size_t>(used) - (sequence.tail == Sequence::Tail::kWritten ? 1 : 0);
}

// --- joining and leaving ---

absl::StatusOr<CacheManager::Sequence*> CacheManager::AddSequence(SequenceId sequence) {
  assert(!Contains(sequence));
  const auto slot = std::find(slot_taken_.begin(), slot_taken_.end(), false);
  if (slot == slot_taken_.end()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", slot_taken_.size(), " sequence slots are taken"));
  }
  *slot = true;
  order_.push_back(sequence);
  Sequence& added = sequences_[sequence];
  added.slot = SlotId{static_cast<int32_t>(slot - slot_taken_.begin())};
  StructureChanged();
  return &added;
}

void CacheManager::StructureChanged() {
  ++generation_;
  plan_ = nullptr;
}

absl::StatusOr<CacheManager::Sequence*> CacheManager::AddMatched(SequenceId sequence,
                                                                 const Namespace& name_space,
                                                                 const MatchResult& match,
                                                                 int32_t prompt_tokens) {
  assert(match.num_tokens == 0 || IsCurrent(match));
  const absl::StatusOr<Sequence*> added = AddSequence(sequence);
  if (!added.ok()) return added.status();
  Sequence& joined = **added;
  joined.root = cache_.HoldRoot(name_space);
  joined.prompt_tokens = prompt_tokens;
  joined.published_tokens = joined.appended_tokens = match.num_tokens;
  totals_.logical_tokens += match.num_tokens;
  if (match.num_tokens > 0) {
    joined.path.resize(static_cast<size_t>(tree().node(match.node).depth_nodes));
    NodeId id = match.node;
    for (auto entry = joined.path.rbegin(); entry != joined.path.rend(); ++entry) {
      const PrefixTree::Node& node = tree().node(id);
      *entry = {id, node.chunk, node.depth_tokens};
      id = node.parent;
    }
    assert(id == joined.root);
    if (match.num_tokens < joined.path.back().key_begin + options_.chunk_tokens) {
      joined.tail = Sequence::Tail::kPart;
    }
  }
  return &joined;
}

absl::StatusOr<SlotId> CacheManager::Join(SequenceId sequence, const Namespace& name_space,
                                          const MatchResult& match, int32_t prompt_tokens) {
  const auto joined = AddMatched(sequence, name_space, match, prompt_tokens);
  if (!joined.ok()) return joined.status();
  totals_.matched_tokens_total += match.num_tokens;
  cache_.BeginRequest();
  for (const PathEntry& entry : (*joined)->path) {
    cache_.Hit(entry.node, match.num_tokens < tree().node(entry.node).end_tokens());
  }
  for (const PathEntry& entry : (*joined)->path) cache_.Hold(entry.node);
  return (*joined)->slot;
}

absl::StatusOr<SlotId> CacheManager::Rejoin(SequenceId sequence, const Namespace& name_space,
                                            const MatchResult& match, int32_t prompt_tokens) {
  const auto joined = AddMatched(sequence, name_space, match, prompt_tokens);
  if (!joined.ok()) return joined.status();
  for (const PathEntry& entry : (*joined)->path) cache_.Hold(entry.node);
  return (*joined)->slot;
}

void CacheManager::Retain(SequenceId sequence, std::string_view tenant) {
  for (const PathEntry& entry : Get(sequence).path) cache_.Retain(entry.node, tenant);
}

void CacheManager::Await(SequenceId sequence, const WaitingPlace& place, const MatchResult& match) {
  if (match.num_tokens == 0) return cache_.StopAwaiting(sequence);
  NodeId node = match.node;
  const PrefixTree::Node& last = tree().node(node);
  const PrefixTree::Node& parent = tree().node(last.parent);
  if (match.num_tokens < last.end_tokens() && parent.children.size() > kFewAlike) {
    if (parent.is_root()) return cache_.StopAwaiting(sequence);
    node = last.parent;
  }
  cache_.Await(sequence, place, node);
}

absl::StatusOr<SlotId> CacheManager::Fork(SequenceId sequence, SequenceId source,
                                          int32_t num_tokens) {
  assert(num_tokens >= 0 && num_tokens <= published_tokens(source));
  const absl::StatusOr<Sequence*> added = AddSequence(sequence);
  if (!added.ok()) return added.status();
  Sequence& forked = **added;
  const Sequence& from = Get(source);
  forked.root = from.root;
  cache_.HoldRootAgain(forked.root);
  forked.prompt_tokens = from.prompt_tokens;
  forked.published_tokens = forked.appended_tokens = num_tokens;
  totals_.logical_tokens += num_tokens;
  const auto end =
      std::partition_point(from.path.begin(), from.path.end(),
                           [&](const PathEntry& entry) { return entry.key_begin < num_tokens; });
  forked.path.assign(from.path.begin(), end);
  if (!forked.path.empty() && num_tokens < forked.path.back().key_begin + options_.chunk_tokens) {
    forked.tail = Sequence::Tail::kPart;
  }
  for (const PathEntry& entry : forked.path) cache_.Hold(entry.node);
  return forked.slot;
}

void CacheManager::HandOver(SequenceId sequence, SequenceId source, int32_t num_tokens) {
  slot_taken_[ToIndex(slot(source))] = false;
  const absl::StatusOr<SlotId> taken = Fork(sequence, source, num_tokens);
  assert(taken.ok());
  Leave(source);
  slot_taken_[ToIndex(*taken)] = true;  // it may be that of `source`
}

void CacheManager::LeaveKeeping(SequenceId sequence, int32_t kept_tokens) {
  Sequence& left = Get(sequence);
  // Another's chunk, of which it holds the first tokens, says nothing of it.
  const size_t own = left.path.size() - (left.tail == Sequence::Tail::kPart ? 1 : 0);
  if (own > 0) cache_.Leaving(left.path[own - 1].node, left.answer);
  kept_tokens = std::min(kept_tokens, left.published_tokens);  // what is behind is another's
  for (const PathEntry& entry : left.path) {
    if (entry.key_begin >= kept_tokens) break;
    cache_.Keep(entry.node, kept_tokens);
  }
  totals_.logical_tokens -= left.appended_tokens;
  // The first chunk is freed last and so is taken again first.
  for (auto chunk = left.reserved.rbegin(); chunk != left.reserved.rend(); ++chunk) {
    cache_.Release(*chunk);
  }
  for (auto entry = left.path.rbegin(); entry != left.path.rend(); ++entry) {
    cache_.Unhold(entry->node);
  }
  cache_.UnholdRoot(left.root);
  slot_taken_[ToIndex(left.slot)] = false;
  order_.erase(std::find(order_.begin(), order_.end(), sequence));
  sequences_.erase(sequence);
  StructureChanged();
}

void CacheManager::LeaveForGood(SequenceId sequence, int32_t kept_tokens) {
  std::vector<PathEntry> path = Get(sequence).path;
  const bool in_part = Get(sequence).tail == Sequence::Tail::kPart;
  LeaveKeeping(sequence, kept_tokens);
  // Its last chunk is another's: only what may be wrong goes.
  if (in_part && kept_tokens != kForgetAll) path.pop_back();
  const auto last = std::find_if(path.rbegin(), path.rend(), [&](const PathEntry& entry) {
    return tree().node(entry.node).live;  // some sibling may have had all of its tokens
  });
  if (last != path.rend()) cache_.Forget(last->node, kept_tokens);
}

void CacheManager::Keep(const MatchResult& before, const Namespace& name_space,
                        const TokenSpan& tokens, AnswerEnd answer) {
  const PrefixTree::PrefixMatch found = FindAgain(before, name_space, tokens);
  if (found.node == kNoNode) return;
  // Behind what is kept in part, or in whole, all is kept in whole.
  for (NodeId id = found.node; !tree().node(id).is_root(); id = tree().node(id).parent) {
    if (!cache_.Keep(id, found.num_tokens)) break;
  }
  const NodeId last = LastOwnNode(tree(), found);
  if (answer != AnswerEnd::kOther && !tree().node(last).is_root()) cache_.HasLeft(last, answer);
}

void CacheManager::Forget(const MatchResult& before, const Namespace& name_space,
                          const TokenSpan& tokens, int32_t kept_tokens) {
  const PrefixTree::PrefixMatch found = FindAgain(before, name_space, tokens);
  if (found.node != kNoNode) cache_.Forget(LastOwnNode(tree(), found), kept_tokens);
}

// --- growing ---

// Whoever writes a node holds it, too: who holds it alone may write.
bool CacheManager::MayTakeOver(const Sequence& sequence) const {
  const PrefixTree::Node& node = tree().node(sequence.path.back().node);
  return node.use.refs == 1 && node.end_tokens() == sequence.published_tokens;
}

bool CacheManager::MayCut(const Sequence& sequence) const {
  const NodeUse& use = cache_.use(sequence.path.back().node);
  return use.refs == 1 && use.pins == 0;
}

absl::Status CacheManager::Reserve(SequenceId sequence, int32_t num_tokens) {
  if (num_tokens <= 0) return absl::OkStatus();
  Sequence& grown = Get(sequence);
  const bool part = grown.tail == Sequence::Tail::kPart;
  bool copies = part && !MayTakeOver(grown);
  const int32_t wanted =
      ChunksFor(grown.appended_tokens + num_tokens - WriteBegin(grown), options_.chunk_tokens);
  const int32_t has = part ? 1 : static_cast<int32_t>(WritableChunks(grown));
  const int32_t missing = std::max(wanted - has, 0);
  const int32_t available = cache_.available_chunks();
  // The last resort: what is behind the part match goes, like all else that is cached.
  const bool cuts = copies && missing == available && MayCut(grown);
  if (cuts) copies = false;
  const int32_t needed = missing + (copies ? 1 : 0);
  if (needed > available) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a sequence of ", grown.appended_tokens, " tokens needs ", needed, " more KV chunks for ",
        num_tokens, " tokens, ", available, " of ", options_.num_chunks, " are free or cached"));
  }
  cache_.MakeFree(needed);
  if (copies) {
    if (absl::Status status = CopyTail(&grown); !status.ok()) return status;
  } else if (part) {
    const PathEntry& last = grown.path.back();
    if (cuts) cache_.Truncate(last.node, grown.published_tokens - last.key_begin);
    grown.tail = Sequence::Tail::kWritten;
  }
  for (int32_t i = 0; i < missing; ++i) grown.reserved.push_back(cache_.Allocate());
  return absl::OkStatus();
}

absl::Status CacheManager::CopyTail(Sequence* sequence) {
  const PathEntry from = sequence->path.back();
  const size_t tokens = static_cast<size_t>(sequence->published_tokens - from.key_begin);
  const ChunkId copy = cache_.Allocate();
  if (absl::Status status = mover_->CopyChunk(from.chunk, copy); !status.ok()) {
    cache_.Release(copy);
    return status;
  }
  ++totals_.copied_chunks_total;
  const std::span<int32_t> positions = PositionsOf(copy).first(tokens);
  std::copy_n(PositionsOf(from.chunk).begin(), tokens, positions.begin());
  const PrefixTree::Node& node = tree().node(from.node);
  sequence->path.back() = {
      cache_.AddNode(node.parent, copy, {tree().ids(from.node).first(tokens), positions},
                     node.use.reuse),
      copy, from.key_begin};
  sequence->tail = Sequence::Tail::kWritten;
  cache_.Unhold(from.node);
  StructureChanged();
  return absl::OkStatus();
}

void CacheManager::Append(SequenceId sequence, std::span<const int32_t> positions,
                          std::vector<TokenPlace>* places) {
  if (positions.empty()) return;
  Sequence& grown = Get(sequence);
  const int32_t c = options_.chunk_tokens;
  const int32_t count = static_cast<int32_t>(positions.size());
  assert(grown.appended_tokens + count <= reserved_tokens(sequence));
  const size_t used_before = UsedReserved(grown);
  const int32_t write_begin = WriteBegin(grown);
  for (const int32_t position : positions) {
    const int32_t at = grown.appended_tokens++ - write_begin;
    const ChunkId chunk = WritableChunk(grown, static_cast<size_t>(at / c));
    PositionsOf(chunk)[static_cast<size_t>(at % c)] = position;
    places->push_back({chunk, at % c});
  }
  totals_.logical_tokens += count;
  if (UsedReserved(grown) != used_before) StructureChanged();
}

void CacheManager::Publish(SequenceId sequence, std::span<const TokenId> ids) {
  Sequence& grown = Get(sequence);
  assert(grown.published_tokens + static_cast<int32_t>(ids.size()) <= grown.appended_tokens);
  const size_t c = static_cast<size_t>(options_.chunk_tokens);
  size_t opened = 0;
  while (!ids.empty()) {
    size_t count;
    if (grown.tail == Sequence::Tail::kWritten) {
      const int32_t used = tree().node(grown.path.back().node).tokens;
      count = std::min(ids.size(), c - static_cast<size_t>(used));
      ExtendTail(&grown, ids.first(count));
    } else {
      count = std::min(ids.size(), c);
      OpenNode(&grown, grown.reserved[opened++], ids.first(count));
    }
    grown.published_tokens += static_cast<int32_t>(count);
    ids = ids.subspan(count);
  }
  grown.reserved.erase(grown.reserved.begin(),
                       grown.reserved.begin() + static_cast<ptrdiff_t>(opened));
}

void CacheManager::OpenNode(Sequence* sequence, ChunkId chunk, std::span<const TokenId> ids) {
  const int32_t begin = sequence->published_tokens;
  const NodeId parent = sequence->path.empty() ? sequence->root : sequence->path.back().node;
  const TokenSpan tokens{ids, PositionsOf(chunk).first(ids.size())};
  const bool full = ids.size() == static_cast<size_t>(options_.chunk_tokens);
  if (full) {
    if (const NodeId equal = tree().FindFullChildOrNone(parent, tokens); equal != kNoNode) {
      cache_.Hold(equal);
      sequence->path.push_back({equal, tree().node(equal).chunk, begin});
      cache_.Release(chunk);
      ++totals_.merged_chunks_total;
      StructureChanged();
      return;
    }
  }
  const NodeId node = cache_.AddNode(
      parent, chunk, tokens,
      begin >= sequence->prompt_tokens ? ReuseClass::kGenerated : ReuseClass::kPrompt);
  sequence->path.push_back({node, chunk, begin});
  if (!full) sequence->tail = Sequence::Tail::kWritten;
}

void CacheManager::ExtendTail(Sequence* sequence, std::span<const TokenId> ids) {
  const PathEntry tail = sequence->path.back();
  const std::span<const TokenId> before = tree().ids(tail.node);
  const std::span<int32_t> positions = PositionsOf(tail.chunk);
  const bool full = before.size() + ids.size() == static_cast<size_t>(options_.chunk_tokens);
  if (full) {
    sequence->tail = Sequence::Tail::kWhole;
    full_ids_.assign(before.begin(), before.end());
    full_ids_.insert(full_ids_.end(), ids.begin(), ids.end());
    const NodeId equal =
        tree().FindFullChildOrNone(tree().node(tail.node).parent, {full_ids_, positions});
    if (equal != kNoNode) {
      Merge(tail.node, equal);
      return;
    }
  }
  cache_.Extend(tail.node, {ids, positions.subspan(before.size(), ids.size())});
}

void CacheManager::Merge(NodeId from, NodeId to) {
  // A node that was part-full until now is the last one of all that hold it.
  for (auto& [id, sequence] : sequences_) {
    if (sequence.path.empty() || sequence.path.back().node != from) continue;
    sequence.path.back().node = to;
    sequence.path.back().chunk = tree().node(to).chunk;
  }
  cache_.Replace(from, to);
  ++totals_.merged_chunks_total;
  StructureChanged();
}

// --- plan ---

std::shared_ptr<const AttentionPlan> CacheManager::Plan() {
  if (plan_ != nullptr) return plan_;
  std::vector<PlanSequence> sequences;
  sequences.reserve(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) {
    const Sequence& s = Get(order_[i]);
    sequences.push_back(
        {s.slot, i, s.path, std::span(s.reserved).first(UsedReserved(s)),
         WriteBegin(s) + (s.tail == Sequence::Tail::kWritten ? options_.chunk_tokens : 0)});
  }
  auto plan =
      std::make_shared<AttentionPlan>(BuildAttentionPlan(tree(), options_.chunk_tokens, sequences));
  plan->generation = generation_;
  std::vector<SequenceId> ordered;
  ordered.reserve(order_.size());
  for (const PlanSequence& s : sequences) ordered.push_back(order_[s.index]);
  order_ = std::move(ordered);
  plan_ = std::move(plan);
  return plan_;
}

}  // namespace refrain::kvcache
