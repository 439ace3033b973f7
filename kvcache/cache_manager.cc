#include "kvcache/cache_manager.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"

namespace refrain::kvcache {
namespace {

size_t ChunksFor(int32_t tokens, int32_t chunk_tokens) {
  return static_cast<size_t>((tokens + chunk_tokens - 1) / chunk_tokens);
}

absl::Status OutOfRange(const char* name, int32_t value, int32_t least) {
  return absl::InvalidArgumentError(
      absl::StrCat("KV cache: ", name, " is ", value, ", must be at least ", least));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CacheManager>> CacheManager::Create(const CacheOptions& options,
                                                                   ChunkMover* mover) {
  if (options.num_chunks < 1) return OutOfRange("num_chunks", options.num_chunks, 1);
  if (options.max_slots < 1) return OutOfRange("max_slots", options.max_slots, 1);
  if (options.chunk_tokens < 16 || options.chunk_tokens % 16 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "KV cache: chunk_tokens is ", options.chunk_tokens, ", must be a multiple of 16"));
  }
  return std::unique_ptr<CacheManager>(new CacheManager(options, mover));
}

CacheManager::CacheManager(const CacheOptions& options, ChunkMover* mover)
    : options_(options),
      mover_(mover),
      pool_(options.num_chunks),
      positions_(static_cast<size_t>(options.num_chunks) *
                 static_cast<size_t>(options.chunk_tokens)),
      slot_taken_(static_cast<size_t>(options.max_slots), false) {}

MatchResult CacheManager::Match(const Namespace&, const TokenSpan&) const {
  return {.num_tokens = 0, .generation = generation_};
}

CacheStats CacheManager::stats() const {
  return {.total_chunks = pool_.total_chunks(),
          .free_chunks = pool_.free_chunks(),
          .used_chunks = pool_.total_chunks() - pool_.free_chunks(),
          .cached_chunks = 0,
          .touched_chunks = pool_.touched_chunks(),
          .sequences = static_cast<int32_t>(sequences_.size()),
          .chunk_tokens = options_.chunk_tokens,
          .copied_chunks_total = copied_chunks_total_};
}

int32_t CacheManager::reserved_tokens(SequenceId sequence) const {
  return static_cast<int32_t>(Get(sequence).chunks.size()) * options_.chunk_tokens;
}

int32_t CacheManager::ExclusiveChunks(SequenceId sequence) const {
  const auto& chunks = Get(sequence).chunks;
  return static_cast<int32_t>(std::count_if(
      chunks.begin(), chunks.end(), [&](ChunkId chunk) { return pool_.references(chunk) == 1; }));
}

const CacheManager::Sequence& CacheManager::Get(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  assert(found != sequences_.end());
  return found->second;
}

CacheManager::Sequence& CacheManager::Get(SequenceId sequence) {
  return const_cast<Sequence&>(std::as_const(*this).Get(sequence));
}

SlotId CacheManager::TakeSlot() {
  const auto free = std::find(slot_taken_.begin(), slot_taken_.end(), false);
  assert(free != slot_taken_.end());
  *free = true;
  return SlotId{static_cast<int32_t>(free - slot_taken_.begin())};
}

void CacheManager::StructureChanged() {
  ++generation_;
  plan_ = nullptr;
}

absl::StatusOr<SlotId> CacheManager::Join(SequenceId sequence, const Namespace&,
                                          const MatchResult& match) {
  assert(!Contains(sequence));
  assert(match.num_tokens == 0);
  if (sequences_.size() >= slot_taken_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", slot_taken_.size(), " sequence slots are taken"));
  }
  Sequence& joined = sequences_[sequence];
  joined.slot = TakeSlot();
  order_.push_back(sequence);
  StructureChanged();
  return joined.slot;
}

absl::StatusOr<SlotId> CacheManager::Fork(SequenceId sequence, SequenceId source,
                                          int32_t num_tokens) {
  assert(!Contains(sequence));
  assert(num_tokens >= 0 && num_tokens <= published_tokens(source));
  if (sequences_.size() >= slot_taken_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", slot_taken_.size(), " sequence slots are taken"));
  }
  const size_t c = static_cast<size_t>(options_.chunk_tokens);
  const size_t full_chunks = static_cast<size_t>(num_tokens) / c;
  const size_t rest_tokens = static_cast<size_t>(num_tokens) % c;
  Sequence forked;
  {
    const Sequence& from = Get(source);
    forked.chunks.assign(from.chunks.begin(),
                         from.chunks.begin() + static_cast<ptrdiff_t>(full_chunks));
    if (rest_tokens > 0) {
      const std::optional<ChunkId> copy = pool_.AllocateOrNull();
      if (!copy.has_value()) {
        return absl::ResourceExhaustedError(
            absl::StrCat("all ", pool_.total_chunks(), " KV chunks are in use"));
      }
      const ChunkId original = from.chunks[full_chunks];
      if (absl::Status status = mover_->CopyChunk(original, *copy); !status.ok()) {
        pool_.Release(*copy);
        return status;
      }
      std::copy_n(positions_.begin() + static_cast<ptrdiff_t>(ToIndex(original) * c), rest_tokens,
                  positions_.begin() + static_cast<ptrdiff_t>(ToIndex(*copy) * c));
      ++copied_chunks_total_;
      forked.chunks.push_back(*copy);
    }
    forked.appended_tokens = num_tokens;
    forked.published.assign(from.published.begin(), from.published.begin() + num_tokens);
  }
  for (size_t i = 0; i < full_chunks; ++i) pool_.Share(forked.chunks[i]);
  forked.slot = TakeSlot();
  const SlotId slot = forked.slot;
  sequences_.emplace(sequence, std::move(forked));
  order_.insert(std::find(order_.begin(), order_.end(), source) + 1, sequence);
  StructureChanged();
  return slot;
}

absl::Status CacheManager::Reserve(SequenceId sequence, int32_t num_tokens) {
  Sequence& grown = Get(sequence);
  const size_t wanted = ChunksFor(grown.appended_tokens + num_tokens, options_.chunk_tokens);
  if (wanted <= grown.chunks.size()) return absl::OkStatus();
  const size_t missing = wanted - grown.chunks.size();
  if (missing > static_cast<size_t>(pool_.free_chunks())) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a sequence of ", grown.appended_tokens, " tokens needs ", missing, " more KV chunks for ",
        num_tokens, " tokens, ", pool_.free_chunks(), " of ", pool_.total_chunks(), " are free"));
  }
  for (size_t i = 0; i < missing; ++i) grown.chunks.push_back(*pool_.AllocateOrNull());
  return absl::OkStatus();
}

void CacheManager::Append(SequenceId sequence, std::span<const int32_t> positions,
                          std::vector<TokenPlace>* places) {
  Sequence& grown = Get(sequence);
  const int32_t c = options_.chunk_tokens;
  assert(grown.appended_tokens + static_cast<int32_t>(positions.size()) <=
         reserved_tokens(sequence));
  const size_t used_before = UsedChunks(grown);
  for (const int32_t position : positions) {
    const ChunkId chunk = grown.chunks[static_cast<size_t>(grown.appended_tokens / c)];
    const int32_t offset = grown.appended_tokens % c;
    positions_[ToIndex(chunk) * static_cast<size_t>(c) + static_cast<size_t>(offset)] = position;
    places->push_back({chunk, offset});
    ++grown.appended_tokens;
  }
  if (UsedChunks(grown) != used_before) StructureChanged();
}

void CacheManager::Publish(SequenceId sequence, std::span<const TokenId> ids) {
  Sequence& published = Get(sequence);
  published.published.insert(published.published.end(), ids.begin(), ids.end());
  assert(static_cast<int32_t>(published.published.size()) <= published.appended_tokens);
}

void CacheManager::Leave(SequenceId sequence) {
  Sequence& left = Get(sequence);
  // The first chunk is freed last and so is taken again first.
  for (auto chunk = left.chunks.rbegin(); chunk != left.chunks.rend(); ++chunk) {
    pool_.Release(*chunk);
  }
  slot_taken_[ToIndex(left.slot)] = false;
  order_.erase(std::find(order_.begin(), order_.end(), sequence));
  sequences_.erase(sequence);
  StructureChanged();
}

size_t CacheManager::UsedChunks(const Sequence& sequence) const {
  return ChunksFor(sequence.appended_tokens, options_.chunk_tokens);
}

std::shared_ptr<const AttentionPlan> CacheManager::Plan() {
  if (plan_ == nullptr) {
    auto plan = std::make_shared<AttentionPlan>();
    plan->generation = generation_;
    AddRuns(0, order_.size(), 0, plan.get());
    plan_ = std::move(plan);
  }
  return plan_;
}

void CacheManager::AddRuns(size_t begin, size_t end, size_t depth, AttentionPlan* plan) const {
  while (begin < end) {
    const Sequence& first = Get(order_[begin]);
    const size_t first_used = UsedChunks(first);
    if (first_used <= depth) {  // nothing behind what is shared
      ++begin;
      continue;
    }
    // Neighbours with the same next chunk, and how far they stay together.
    size_t group_end = begin + 1;
    size_t common = first_used;
    while (group_end < end) {
      const Sequence& next = Get(order_[group_end]);
      const size_t limit = std::min(common, UsedChunks(next));
      if (limit <= depth || next.chunks[depth] != first.chunks[depth]) break;
      size_t equal = depth + 1;
      while (equal < limit && next.chunks[equal] == first.chunks[equal]) ++equal;
      common = equal;
      ++group_end;
    }
    const int32_t c = options_.chunk_tokens;
    PlanRun run;
    run.chunk_begin = static_cast<int32_t>(plan->chunks.size());
    run.slot_begin = static_cast<int32_t>(plan->slots.size());
    for (size_t i = depth; i < common; ++i) {
      plan->chunks.push_back({first.chunks[i], static_cast<int32_t>(i - depth) * c});
    }
    for (size_t i = begin; i < group_end; ++i) {
      plan->slots.push_back(
          {Get(order_[i]).slot, static_cast<int32_t>(depth) * c, /*key_end=*/std::nullopt});
    }
    run.chunk_end = static_cast<int32_t>(plan->chunks.size());
    run.slot_end = static_cast<int32_t>(plan->slots.size());
    plan->runs.push_back(run);
    if (group_end - begin > 1) AddRuns(begin, group_end, common, plan);
    begin = group_end;
  }
}

absl::Status CacheManager::CheckInvariants() const {
  const auto broken = [](auto&&... parts) {
    return absl::InternalError(absl::StrCat("KV cache invariant: ", parts...));
  };
  const CacheStats now = stats();
  if (now.free_chunks + now.used_chunks + now.cached_chunks != now.total_chunks) {
    return broken("free ", now.free_chunks, " + used ", now.used_chunks, " + cached ",
                  now.cached_chunks, " is not total ", now.total_chunks);
  }
  if (order_.size() != sequences_.size()) {
    return broken(order_.size(), " sequences in order, ", sequences_.size(), " running");
  }
  std::vector<int32_t> references(static_cast<size_t>(now.total_chunks), 0);
  std::vector<bool> slots(slot_taken_.size(), false);
  for (const auto& [id, sequence] : sequences_) {
    const auto name = static_cast<uint64_t>(id);
    if (slots[ToIndex(sequence.slot)]) return broken("two sequences in one slot, one is ", name);
    slots[ToIndex(sequence.slot)] = true;
    if (sequence.appended_tokens > reserved_tokens(id)) {
      return broken("sequence ", name, " has ", sequence.appended_tokens, " tokens in chunks for ",
                    reserved_tokens(id));
    }
    if (static_cast<int32_t>(sequence.published.size()) > sequence.appended_tokens) {
      return broken("sequence ", name, " published more than was appended");
    }
    for (size_t i = 0; i < sequence.chunks.size(); ++i) {
      const ChunkId chunk = sequence.chunks[i];
      ++references[ToIndex(chunk)];
      const bool writable = (i + 1) * static_cast<size_t>(options_.chunk_tokens) >
                            static_cast<size_t>(sequence.appended_tokens);
      if (writable && pool_.references(chunk) != 1) {
        return broken("sequence ", name, " may write into shared chunk ",
                      static_cast<int32_t>(chunk));
      }
    }
  }
  if (slots != slot_taken_) return broken("a slot is taken by no sequence");
  int32_t used = 0;
  for (size_t i = 0; i < references.size(); ++i) {
    const int32_t counted = pool_.references(ChunkId{static_cast<int32_t>(i)});
    if (references[i] != counted) {
      return broken("chunk ", i, " has ", references[i], " sequences, ", counted, " references");
    }
    used += counted > 0 ? 1 : 0;
  }
  if (used != now.used_chunks)
    return broken(used, " chunks referenced, ", now.used_chunks, " used");
  return absl::OkStatus();
}

}  // namespace refrain::kvcache
