#ifndef REFRAIN_TOOLS_BENCH_GPU_ATTENTION_WORKLOAD_H_
#define REFRAIN_TOOLS_BENCH_GPU_ATTENTION_WORKLOAD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention_args.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/chunk_attention.h"
#include "tools/bench/gpu_bench_device.h"

namespace refrain::bench {

// Device memory for K and V, filled with a pattern of random values whose length is no divisor of
// any chunk: the host knows every element without reading it back.
class PatternPool {
 public:
  // 2-byte elements from a normal distribution in `dtype`.
  PatternPool(BenchDevice& device, size_t bytes, kernels::DType dtype);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  kernels::DType dtype() const { return dtype_; }
  // The element at a byte offset from data().
  double At(size_t offset) const;

  // The largest distance not above `bytes` over which the pool may be copied onto itself.
  size_t Period(size_t bytes) const;

 private:
  size_t bytes_;
  kernels::DType dtype_;
  std::vector<uint16_t> pattern_;
  std::byte* data_;
};

// One attention call of a batch: `shared_keys` of each slot's `keys` are in chunks that all slots
// attend to, the others in chunks of its own.
struct GpuAttentionShape {
  int slots = 1;
  int keys = 0;         // of each slot, a multiple of the chunk
  int shared_keys = 0;  // a multiple of the chunk
  int rows = 1;         // of each slot, its last keys
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int chunk_tokens = 64;
  kernels::AttentionMode mode = kernels::AttentionMode::kTwoPhase;

  int64_t NumChunks() const {
    return (shared_keys + int64_t{slots} * (keys - shared_keys)) / chunk_tokens;
  }
  // K and V of one layer, every chunk once, 2-byte elements.
  double PhysicalKvBytes() const;
  // Multiply-adds times two of one layer, of the pairs that count (causal).
  double Flops() const;
};

// The call, ready to be launched for any of `layers` layers over a pool of chunks. Rotating layers
// reads other bytes each time, as a model does. Ends the program where memory is short.
class GpuAttentionWorkload {
 public:
  GpuAttentionWorkload(BenchDevice& device, const PatternPool& pool, const GpuAttentionShape& shape,
                       int layers);
  ~GpuAttentionWorkload();

  static size_t PoolBytes(const GpuAttentionShape& shape, int layers);

  // Whether launches start while those before them end, as behind RopeAppend in a model; at first
  // they do. Of Hopper's kernel; the others never do.
  void StartEarly(bool early) { launch_.early = early; }
  void Launch(int layer);
  int layers() const { return layers_; }
  kernels::cuda::AttentionKernel kernel() const { return setup_.kernel; }

  // Launches, and compares some rows and heads of the first and the last layer with double
  // arithmetic: the largest distance of a head's output from what it should be, in parts of that
  // one's length.
  double LargestError();

  // What the last launch has written, of all slots. [slots * rows, num_heads, head_dim]
  std::vector<float> Output() const { return device_.Download(launch_.out, q_.size()); }
  // Makes it zeros, which no launch writes.
  void ClearOutput();

 private:
  void FillPlan();
  std::vector<double> Exact(int layer, int slot, int row, int head) const;
  size_t Offset(int32_t chunk, int layer, int kv_head, bool value) const;

  BenchDevice& device_;
  const PatternPool& pool_;
  GpuAttentionShape shape_;
  int layers_;
  std::vector<kernels::RunChunk> chunks_;
  std::vector<kernels::AttentionRun> runs_;
  std::vector<kernels::RunSlot> run_slots_;
  std::vector<kernels::SlotStep> steps_;
  std::vector<float> q_;
  kernels::cuda::AttentionSetup setup_;
  std::unique_ptr<kernels::cuda::AttentionTiles> tiles_;
  kernels::cuda::ChunkAttentionLaunch launch_;
  std::vector<std::byte*> memory_;
};

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_GPU_ATTENTION_WORKLOAD_H_
