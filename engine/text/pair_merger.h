#ifndef REFRAIN_ENGINE_TEXT_PAIR_MERGER_H_
#define REFRAIN_ENGINE_TEXT_PAIR_MERGER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/text/encode_pace.h"

namespace refrain::engine {

// The merge step that byte-level BPE and SentencePiece-type vocabularies share: of all adjacent
// pairs of symbols that may merge, the one of the lowest rank, leftmost among equals, becomes one
// symbol, until no pair may merge.
//
// Short words are scanned again after each merge; long ones use a heap, so that n symbols take
// O(n log n) time. Filled by a tokenizer's factory, then read by any thread with scratch of its
// own. Cannot fail.
class PairMerger {
 public:
  // Memory that Merge reuses from word to word.
  class Scratch {
   public:
    // `pace` is told of the progress through long words; may be null.
    explicit Scratch(EncodePace* pace = nullptr) : pace_(pace) {}

   private:
    friend class PairMerger;
    EncodePace* pace_;
    std::vector<int32_t> ranks_;     // rank of the pair that begins here; kNoRank: cannot merge
    std::vector<int32_t> next_;      // index of the symbol to the right
    std::vector<int32_t> previous_;  // index of the symbol to the left
    std::vector<uint64_t> heap_;     // rank << 32 | index of the left symbol
  };

  explicit PairMerger(size_t expected_pairs);

  // The first addition of a pair stays.
  void Add(int32_t left, int32_t right, int32_t rank, int32_t result);

  // Merges in place. Negative symbols never merge. At most 2^31 - 1 symbols.
  void Merge(std::vector<int32_t>* symbols, Scratch* scratch) const;

 private:
  struct Entry {
    uint64_t key;  // left << 32 | right; kEmpty
    int32_t rank;
    int32_t result;
  };

  const Entry* FindOrNull(int32_t left, int32_t right) const;
  int32_t RankOf(int32_t left, int32_t right) const;
  size_t SlotOf(uint64_t key) const;
  void MergeByScan(std::vector<int32_t>* symbols, Scratch* scratch) const;
  void MergeByHeap(std::vector<int32_t>* symbols, Scratch* scratch) const;
  void Grow();

  // Ids come from a model's file: with a known hash they could be chosen so that all pairs collide.
  uint64_t seed_;
  uint64_t factor_;
  std::vector<Entry> entries_;  // open addressing, a power of two
  size_t num_pairs_ = 0;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_PAIR_MERGER_H_
