#ifndef REFRAIN_TOOLS_BENCH_ATTENTION_WORKLOAD_H_
#define REFRAIN_TOOLS_BENCH_ATTENTION_WORKLOAD_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention_args.h"
#include "kernels/device.h"

namespace refrain::bench {

struct AttentionModel {
  const char* name;
  int num_heads, num_kv_heads, head_dim;

  // K and V of one token in one layer.
  int64_t KvElements() const { return int64_t{2} * num_kv_heads * head_dim; }
};

inline constexpr int kBenchChunkTokens = 64;

// A pool of chunks of `layers` layers, filled with random values, on huge pages. Not thread-safe. A
// benchmark that gets no memory ends the program with a message.
class RandomKv {
 public:
  RandomKv(const AttentionModel& model, kernels::DType dtype, int64_t num_chunks, int layers = 1);

  const kernels::KvPoolView& view() const { return view_; }
  int64_t num_chunks() const { return num_chunks_; }

 private:
  int64_t num_chunks_;
  kernels::DeviceBuffer memory_;
  kernels::KvPoolView view_;
};

// How the slots of a batch hold their first `shared_keys` keys.
enum class Sharing {
  kOwnChunks,  // every slot has chunks of its own: nothing is shared
  kRun,        // one run that all slots attend to, as the prefix tree plans it
  kSameIds,    // a run per slot that lists the same chunks: pages shared by hand
};

struct BatchShape {
  int slots = 1;
  int keys = 0;         // of each slot
  int rows = 1;         // of each slot, its last keys
  int shared_keys = 0;  // a multiple of the chunk
  int window = 0;       // tokens that a row sees, itself included; 0: all before it

  // Chunks that a pool needs for a batch of this shape.
  int64_t NumChunks(Sharing sharing) const;
};

// How far a row may be from the exact one. kOfF32: what f32 arithmetic on values near 1 does.
// kOfBf16Rows: also what rounding queries and weights to bf16 does, which moves a row by 2^-9 or so
// of its length, a few times that in the worst of many.
enum class RowError { kOfF32, kOfBf16Rows };

// One call of ChunkAttention over chunks of a RandomKv, which outlives it.
class AttentionWorkload {
 public:
  AttentionWorkload(const AttentionModel& model, const RandomKv& kv, const BatchShape& shape,
                    Sharing sharing);

  kernels::ChunkAttentionArgs& args() { return args_; }
  const std::vector<float>& out() const { return out_; }

  // Multiply-adds times two, of the rows' own keys only; without a window.
  double Flops() const;
  // K and V of every slot, shared ones counted for each; without a window.
  double KvBytes() const;

  // Compares a row of `slot` with the reference; ends the program where it is wrong.
  void Check(int slot, int row, RowError error) const;

 private:
  void SetPositions(int64_t num_chunks);

  BatchShape shape_;
  int64_t kv_elements_;
  std::vector<kernels::RunChunk> chunks_;
  std::vector<kernels::AttentionRun> runs_;
  std::vector<kernels::RunSlot> run_slots_;
  std::vector<kernels::SlotStep> steps_;
  std::vector<int32_t> positions_;      // [num_chunks, kBenchChunkTokens]
  std::vector<int32_t> row_positions_;  // [slots * rows]
  std::vector<float> q_, out_;
  kernels::ChunkAttentionArgs args_;
};

// Ends the program with status 3 where `got`, of one row or more, is further from `want`.
void CheckAttentionRow(std::span<const float> got, std::span<const float> want, RowError error,
                       const char* what);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_ATTENTION_WORKLOAD_H_
