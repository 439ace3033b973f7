#include "kernels/cuda/chunk_attention_hopper_kernel.h"

namespace refrain::kernels::cuda {

void LaunchHopperAttentionF16(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                              const ChunkAttentionLaunch& args) {
  LaunchHopperOfType<F16>(stream, grid_blocks, head_blocks, args);
}

void LaunchHopperAttention(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                           const ChunkAttentionLaunch& args) {
  if (args.kv.dtype == DType::kF16) {
    LaunchHopperAttentionF16(stream, grid_blocks, head_blocks, args);
  } else {
    LaunchHopperAttentionBf16(stream, grid_blocks, head_blocks, args);
  }
}

bool HopperAttentionHas(const AttentionShapeInfo& shape) {
  const int dim = shape.head_dim, chunk = shape.chunk_tokens;
  return (dim == 64 || dim == 96 || dim == 128 || dim == 256) &&
         (chunk == 16 || chunk == 32 || chunk == 64 || chunk == 128) &&
         (shape.kv_dtype == DType::kF16 || shape.kv_dtype == DType::kBF16) && !shape.reproducible;
}

size_t HopperAttentionSharedBytes(int head_dim) {
  switch (head_dim) {
    case 64:
      return sizeof(HopperShared<HopperShape<F16, 64>>);
    case 96:
      return sizeof(HopperShared<HopperShape<F16, 96>>);
    case 128:
      return sizeof(HopperShared<HopperShape<F16, 128>>);
  }
  return sizeof(HopperShared<HopperShape<F16, 256>>);
}

}  // namespace refrain::kernels::cuda
