#ifndef REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_H_
#define REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention_args.h"
#include "kernels/cuda/attention_tile_list.h"
#include "kernels/cuda/attention_tiles.h"

namespace refrain::kernels::cuda {

class Stream;

// Chunk attention on a CUDA device: two-phase or paged is in the tile list, not in the kernel.
//
//   const AttentionSetup setup = SetUpAttention(shape, device);     // once per model
//   AttentionTiles tiles(setup.limits);
//   tiles.Plan(plan, steps, mode, reproducible);                    // when !tiles.Serves(steps)
//   ... tiles.bytes() to the device, steps too, every step ...
//   LaunchChunkAttention(stream, setup, args);                      // every layer
//
// Nothing of a launch depends on plan or lengths: pointers into fixed device buffers and a fixed
// grid, so that a CUDA graph can replay it. Launches keep their failure in the stream.

//   kGeneric  any head_dim from 8 to 256, f32, f16, bf16 and fp8_e4m3, products in f32
//   kMma      mma.sync and cp.async (sm_80), head_dim 64, 96, 128, 256, f16, bf16 and fp8_e4m3:
//             rounds q and the weights to the cache's type (of fp8 to bf16), sums in f32
//   kHopper   wgmma and bulk copies (sm_90a), f16 and bf16, not reproducible
enum class AttentionKernel : uint8_t { kGeneric, kMma, kHopper };
inline constexpr AttentionKernel kAttentionKernels[] = {  // the fastest first
    AttentionKernel::kHopper, AttentionKernel::kMma, AttentionKernel::kGeneric};

struct AttentionShapeInfo {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int chunk_tokens = 64;
  DType kv_dtype = DType::kF16;
  bool reproducible = false;
};

struct AttentionDevice {
  int compute_capability = 80;  // 10 x major + minor
  int num_multiprocessors = 108;
  size_t shared_bytes_per_block = 0;  // most that a block can opt in to
  size_t shared_bytes_per_multiprocessor = 0;
};

struct AttentionSetup {
  AttentionKernel kernel = AttentionKernel::kGeneric;
  AttentionTileLimits limits;
  int grid_blocks = 0;
};

// The fastest kernel for the shape on this device.
AttentionSetup SetUpAttention(const AttentionShapeInfo& shape, const AttentionDevice& device);

// The same for a kernel by name; false from Supports means that it must not be used.
bool Supports(AttentionKernel kernel, const AttentionShapeInfo& shape,
              const AttentionDevice& device);
AttentionSetup SetUpAttention(AttentionKernel kernel, const AttentionShapeInfo& shape,
                              const AttentionDevice& device);

// One layer's attention. Every pointer is device memory.
struct ChunkAttentionLaunch {
  // sizes
  int layer = 0;
  int num_heads = 0;
  int window_tokens = 0;  // 0 = none
  float scale = 0.0f;
  bool reproducible = false;
  // The kernel before it on the stream is one that lets others start (WaitForKernelBefore) and was
  // itself put there after all that wrote `tiles` and `steps`: those are read at once.
  bool early = false;
  // inputs
  KvPoolView kv;                             // packed as kv_packing.h says
  const AttentionTileList* tiles = nullptr;  // AttentionTiles::bytes()
  const SlotStep* steps = nullptr;           // [num_slots]
  const int32_t* row_positions = nullptr;    // [num_rows]; read only where a window is set
  const float* q = nullptr;                  // [num_rows, num_heads * head_dim], rotated
  int64_t q_stride = 0;  // elements between rows; a multiple of 4, as q's address
  // scratch
  float* partials = nullptr;     // [PartialStateFloats(...)], contents of no interest
  int32_t max_partial_rows = 0;  // room in `partials`, at least AttentionTiles::num_partial_rows
  int32_t* counters = nullptr;   // [AttentionTiles::num_counters], zero; zero again afterwards
  // output
  float* out = nullptr;  // [num_rows, num_heads * head_dim]
  int64_t out_stride = 0;
};

// Partial states in `partials`: o [head_dim] of all max_partial_rows x num_heads states, behind
// them the pairs (m, n) of all.
constexpr size_t PartialStateFloats(int32_t max_partial_rows, int num_heads, int head_dim) {
  return static_cast<size_t>(max_partial_rows) * num_heads * (head_dim + 2);
}

void LaunchChunkAttention(Stream& stream, const AttentionSetup& setup,
                          const ChunkAttentionLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_H_
