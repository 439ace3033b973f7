#ifndef REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_GENERIC_H_
#define REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_GENERIC_H_

#include <cstddef>

#include "kernels/cuda/chunk_attention.h"

// The kernel for every shape that has no faster one: any head_dim from 8 to 256, K and V in f32,
// f16, bf16 or fp8, products and sums in f32 without tensor cores.
namespace refrain::kernels::cuda {

inline constexpr int kGenericAttentionQueries = 16;  // of one tile

size_t GenericAttentionSharedBytes(int head_dim, bool reproducible);

// `head_blocks` must be made for kGenericAttentionQueries.
void LaunchGenericAttention(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                            const ChunkAttentionLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_GENERIC_H_
