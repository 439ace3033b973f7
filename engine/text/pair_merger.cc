#include "engine/text/pair_merger.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

#include "engine/text/seeded_hash.h"

namespace refrain::engine {
namespace {

constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
// Below this many symbols scanning is faster than a heap (measured on English text).
constexpr size_t kMaxScannedSymbols = 48;
// The pace is told of so many symbols at once.
constexpr int kPacedSymbols = 64;

uint64_t KeyOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

PairMerger::PairMerger(size_t expected_pairs)
    : seed_(RandomSeed()),
      factor_(RandomSeed() | 1),
      entries_(std::bit_ceil(2 * expected_pairs + 16), Entry{kEmpty, 0, 0}) {}

size_t PairMerger::SlotOf(uint64_t key) const {
  const auto product = static_cast<unsigned __int128>(key ^ seed_) * factor_;
  const uint64_t mixed = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  return mixed & (entries_.size() - 1);
}

void PairMerger::Grow() {
  std::vector<Entry> old(2 * entries_.size(), Entry{kEmpty, 0, 0});
  old.swap(entries_);
  for (const Entry& entry : old) {
    if (entry.key == kEmpty) continue;
    size_t slot = SlotOf(entry.key);
    while (entries_[slot].key != kEmpty) slot = (slot + 1) & (entries_.size() - 1);
    entries_[slot] = entry;
  }
}

void PairMerger::Add(int32_t left, int32_t right, int32_t rank, int32_t result) {
  if (2 * (num_pairs_ + 1) > entries_.size()) Grow();
  const uint64_t key = KeyOf(left, right);
  size_t slot = SlotOf(key);
  while (entries_[slot].key != kEmpty) {
    if (entries_[slot].key == key) return;
    slot = (slot + 1) & (entries_.size() - 1);
  }
  entries_[slot] = {key, rank, result};
  ++num_pairs_;
}

const PairMerger::Entry* PairMerger::FindOrNull(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return nullptr;
  const uint64_t key = KeyOf(left, right);
  size_t slot = SlotOf(key);
  while (entries_[slot].key != key) {
    if (entries_[slot].key == kEmpty) return nullptr;
    slot = (slot + 1) & (entries_.size() - 1);
  }
  return &entries_[slot];
}

int32_t PairMerger::RankOf(int32_t left, int32_t right) const {
  const Entry* entry = FindOrNull(left, right);
  return entry == nullptr ? kNoRank : entry->rank;
}

void PairMerger::Merge(std::vector<int32_t>* symbols, Scratch* scratch) const {
  if (symbols->size() < 2) return;
  if (symbols->size() <= kMaxScannedSymbols) {
    MergeByScan(symbols, scratch);
  } else {
    MergeByHeap(symbols, scratch);
  }
}

void PairMerger::MergeByScan(std::vector<int32_t>* symbols, Scratch* scratch) const {
  std::vector<int32_t>& s = *symbols;
  std::vector<int32_t>& ranks = scratch->ranks_;
  size_t count = s.size();
  ranks.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = RankOf(s[i], s[i + 1]);
  while (count > 1) {
    const size_t best =
        std::min_element(ranks.begin(), ranks.begin() + (count - 1)) - ranks.begin();
    if (ranks[best] == kNoRank) break;
    s[best] = FindOrNull(s[best], s[best + 1])->result;
    std::move(s.begin() + best + 2, s.begin() + count, s.begin() + best + 1);
    std::move(ranks.begin() + best + 1, ranks.begin() + (count - 1), ranks.begin() + best);
    --count;
    if (best > 0) ranks[best - 1] = RankOf(s[best - 1], s[best]);
    if (best + 1 < count) ranks[best] = RankOf(s[best], s[best + 1]);
  }
  s.resize(count);
}

void PairMerger::MergeByHeap(std::vector<int32_t>* symbols, Scratch* scratch) const {
  std::vector<int32_t>& s = *symbols;
  std::vector<int32_t>& ranks = scratch->ranks_;
  std::vector<int32_t>& next = scratch->next_;
  std::vector<int32_t>& previous = scratch->previous_;
  std::vector<uint64_t>& heap = scratch->heap_;
  const int32_t count = static_cast<int32_t>(s.size());
  ranks.assign(count, kNoRank);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  const auto entry_of = [](int32_t rank, int32_t index) {
    return static_cast<uint64_t>(static_cast<uint32_t>(rank)) << 32 | static_cast<uint32_t>(index);
  };
  const auto push = [&](int32_t i) {
    if (ranks[i] == kNoRank) return;
    heap.push_back(entry_of(ranks[i], i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (int32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    if (i + 1 == count) break;
    if (scratch->pace_ != nullptr && i % kPacedSymbols == 0) scratch->pace_->Did(kPacedSymbols);
    ranks[i] = RankOf(s[i], s[i + 1]);
    push(i);  // not one make_heap at the end: it would work for long without asking the pace
  }
  const auto rank_again = [&](int32_t i) {
    ranks[i] = next[i] < count ? RankOf(s[i], s[next[i]]) : kNoRank;
    push(i);
  };
  for (size_t done = 0; !heap.empty(); ++done) {
    if (scratch->pace_ != nullptr && done % kPacedSymbols == 0) {
      scratch->pace_->Did(kPacedSymbols);
      if (scratch->pace_->stopped()) break;
    }
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const int32_t rank = static_cast<int32_t>(heap.back() >> 32);
    const int32_t left = static_cast<int32_t>(heap.back() & 0xFFFFFFFFu);
    heap.pop_back();
    // The pair this entry was made for is gone when its rank here is another one. Where it is the
    // same one, merging now is right whichever entry says so.
    if (ranks[left] != rank) continue;
    const int32_t right = next[left];
    s[left] = FindOrNull(s[left], s[right])->result;
    next[left] = next[right];
    if (next[right] < count) previous[next[right]] = left;
    ranks[right] = kNoRank;
    rank_again(left);
    if (previous[left] >= 0) rank_again(previous[left]);
  }
  size_t out = 0;
  for (int32_t i = 0; i < count; i = next[i]) s[out++] = s[i];
  s.resize(out);
}

}  // namespace refrain::engine
