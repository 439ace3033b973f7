#ifndef REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_MMA_H_
#define REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_MMA_H_

#include <cstddef>

#include "kernels/cuda/chunk_attention.h"

// The kernel of devices with mma.sync and cp.async (sm_80 and later): head_dim 64, 96, 128, 256, K
// and V in f16, bf16 or fp8_e4m3. q and the weights are rounded to the cache's type, over fp8,
// which is widened on its way into shared memory, to bf16; everything is summed in f32.
namespace refrain::kernels::cuda {

inline constexpr int kMmaAttentionQueries = 64;  // of one tile

bool MmaAttentionHas(int head_dim, DType kv_dtype);

size_t MmaAttentionSharedBytes(int head_dim, bool reproducible);

// `head_blocks` must be made for kMmaAttentionQueries.
void LaunchMmaAttention(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                        const ChunkAttentionLaunch& args);

// Of one element type; LaunchMmaAttention calls them.
void LaunchMmaAttentionF16(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                           const ChunkAttentionLaunch& args);
void LaunchMmaAttentionBf16(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                            const ChunkAttentionLaunch& args);
void LaunchMmaAttentionE4m3(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                            const ChunkAttentionLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_MMA_H_
