#ifndef REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_HOPPER_H_
#define REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_HOPPER_H_

#include "kernels/cuda/chunk_attention.h"

namespace refrain::kernels::cuda {

class Stream;

// Chunk attention by wgmma and bulk copies (sm_90a): decoding and prefill, shared and private
// tiles, in one launch per layer. Products round q (times scale) and the weights to the cache's
// type and sum in f32.
//
// What it takes: f16 or bf16 K and V, head_dim 64, 96, 128 or 256, chunks of 16, 32, 64 or 128
// tokens, compute capability 9.0. It is not reproducible: keys are taken in blocks of 64 by two
// warpgroups, wherever a tile was cut.
bool SupportsHopperAttention(const AttentionShapeInfo& shape, const AttentionDevice& device);

// The tiles that the kernel wants, and one block per multiprocessor. Call for shapes it supports.
AttentionSetup SetUpHopperAttention(const AttentionShapeInfo& shape, const AttentionDevice& device);

// LaunchChunkAttention calls it where setup.kernel says so.
void LaunchHopperAttention(Stream& stream, const AttentionSetup& setup,
                           const ChunkAttentionLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_HOPPER_H_
