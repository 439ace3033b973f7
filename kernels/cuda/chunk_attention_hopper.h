#ifndef REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_HOPPER_H_
#define REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_HOPPER_H_

#include <cstddef>

#include "kernels/cuda/chunk_attention.h"

// The kernel of Hopper devices (compute capability 9.0): wgmma and bulk copies, one persistent
// block per multiprocessor, decoding and prefill, shared and private tiles in one launch. head_dim
// 64, 96, 128, 256, K and V in f16 or bf16, chunks of 16, 32, 64 or 128 tokens. q (times scale) and
// the weights are rounded to the cache's type, everything is summed in f32. Not reproducible: keys
// are taken 64 at a time by two warpgroups, from wherever a tile was cut.
namespace refrain::kernels::cuda {

inline constexpr int kHopperAttentionQueries = 128;  // of one tile

bool HopperAttentionHas(const AttentionShapeInfo& shape);

size_t HopperAttentionSharedBytes(int head_dim);

// `head_blocks` must be made for kHopperAttentionQueries.
void LaunchHopperAttention(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                           const ChunkAttentionLaunch& args);

// Of one element type; LaunchHopperAttention calls them.
void LaunchHopperAttentionF16(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                              const ChunkAttentionLaunch& args);
void LaunchHopperAttentionBf16(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                               const ChunkAttentionLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_HOPPER_H_
