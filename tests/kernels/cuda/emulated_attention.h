#ifndef REFRAIN_TESTS_KERNELS_CUDA_EMULATED_ATTENTION_H_
#define REFRAIN_TESTS_KERNELS_CUDA_EMULATED_ATTENTION_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention_args.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/runtime.h"

namespace refrain::kernels::cuda {

// ChunkAttention by one kernel on the emulated device, from the arguments that other back ends
// take. What the kernel reads and writes lies in allocations of just its size; memory that nothing
// was written to is NaN.
class EmulatedAttention {
 public:
  EmulatedAttention(AttentionKernel kernel, int num_multiprocessors);
  ~EmulatedAttention();

  // Whether the kernel has this shape.
  bool Takes(const ChunkAttentionArgs& args) const;

  // K and V of one layer, repacked once for many calls; without it each call repacks them.
  void SetPool(const KvPoolView& pool, int num_chunks, int layer);

  // Computes args.out. Fails where the device does, or where counters are not zero afterwards.
  absl::Status Attend(const ChunkAttentionArgs& args);

  // Calls with the same plan, mode and row counts one after the other use the same list of tiles.
  int lists_made() const { return lists_made_; }

 private:
  struct PlanCopy {
    std::vector<AttentionRun> runs;
    std::vector<RunChunk> chunks;
    std::vector<RunSlot> slots;
    AttentionMode mode;
    bool reproducible;
  };

  static AttentionShapeInfo ShapeOf(const ChunkAttentionArgs& args);
  void UpdateTiles(const ChunkAttentionArgs& args, const AttentionSetup& setup);

  AttentionKernel kernel_;
  int num_multiprocessors_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<AttentionTiles> tiles_;
  PlanCopy planned_;
  int lists_made_ = 0;
  std::vector<std::byte> pool_;
};

const char* Name(AttentionKernel kernel);

// The first so many chunks of a pool are all that the plan names.
int NumChunks(const AttentionPlanView& plan);

// The pool's bytes with every element of one layer where kv_packing.h puts it, 0xff elsewhere.
std::vector<std::byte> RepackForCuda(const KvPoolView& pool, int num_chunks, int layer);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_TESTS_KERNELS_CUDA_EMULATED_ATTENTION_H_
