#ifndef REFRAIN_TESTS_KERNELS_CPU_ATTENTION_SHARERS_H_
#define REFRAIN_TESTS_KERNELS_CPU_ATTENTION_SHARERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention_args.h"

namespace refrain::kernels::cpu {

inline constexpr int32_t kChunkTokens = 64;

// The arguments of decoding slots behind common tokens, with some of their own each. The common
// ones are behind `lead` others in a run of its own.
class Sharers {
 public:
  Sharers(int32_t slots, int32_t common, int32_t own, int32_t lead = 0)
      : memory_(64), positions_(1) {
    if (lead > 0) AddSharedRun(slots, 0, lead);
    AddSharedRun(slots, lead, common);
    for (int32_t i = 0; i < slots; ++i) {
      const auto first = static_cast<int32_t>(chunks_.size());
      const auto slot = static_cast<int32_t>(slots_.size());
      runs_.push_back({first, AddRun(0, own), slot, slot + 1});
      slots_.push_back({i, lead + common, kOpenEnd});
      steps_.push_back({1, i, 0, lead + common + own});
    }
    args.num_heads = 9;
    args.kv.base = memory_.data();
    args.kv.chunk_bytes = 4096;
    args.kv.chunk_tokens = kChunkTokens;
    args.kv.num_kv_heads = 3;
    args.kv.head_dim = 64;
    args.kv.positions = positions_.data();
    args.plan = {runs_, chunks_, slots_};
    args.steps = steps_;
  }

  ChunkAttentionArgs args;
  std::vector<SlotStep>& steps() { return steps_; }
  std::vector<RunChunk>& chunks() { return chunks_; }
  std::vector<RunSlot>& run_slots() { return slots_; }

 private:
  void AddSharedRun(int32_t slots, int32_t key_begin, int32_t tokens) {
    const auto first_chunk = static_cast<int32_t>(chunks_.size());
    const auto first_slot = static_cast<int32_t>(slots_.size());
    runs_.push_back({first_chunk, AddRun(0, tokens), first_slot, first_slot + slots});
    for (int32_t i = 0; i < slots; ++i) slots_.push_back({i, key_begin, key_begin + tokens});
  }

  int32_t AddRun(int32_t begin, int32_t tokens) {
    for (; begin < tokens; begin += kChunkTokens) {
      chunks_.push_back({static_cast<int32_t>(chunks_.size()), begin});
    }
    return static_cast<int32_t>(chunks_.size());
  }

  std::vector<std::byte> memory_;
  std::vector<int32_t> positions_;
  std::vector<AttentionRun> runs_;
  std::vector<RunChunk> chunks_;
  std::vector<RunSlot> slots_;
  std::vector<SlotStep> steps_;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_TESTS_KERNELS_CPU_ATTENTION_SHARERS_H_
