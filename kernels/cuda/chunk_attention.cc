#include "kernels/cuda/chunk_attention.h"

#include <algorithm>

#include "kernels/cuda/chunk_attention_generic.h"
#include "kernels/cuda/chunk_attention_hopper.h"
#include "kernels/cuda/chunk_attention_mma.h"
#include "kernels/cuda/stream.h"

namespace refrain::kernels::cuda {

namespace {

// Measured on an H200: a tile of few keys takes a multiprocessor as long as five blocks of 64 keys.
constexpr int kHopperTileKeys = 256;

// As many as cost no more than one; two slots where one has nearly that many.
int HopperBundleQueries(int group) { return group <= 4 ? 8 : 16; }

struct KernelNeeds {
  int max_queries;
  int free_queries;
  size_t shared_bytes;
  int blocks_by_registers;  // that fit on a multiprocessor as far as registers go
  int tile_keys = 16;
  int bundle_queries = 0;
};

KernelNeeds NeedsOf(AttentionKernel kernel, const AttentionShapeInfo& shape) {
  switch (kernel) {
    case AttentionKernel::kMma:
      return {kMmaAttentionQueries, 64, MmaAttentionSharedBytes(shape.head_dim, shape.reproducible),
              2};
    case AttentionKernel::kHopper:
      return {kHopperAttentionQueries,
              kHopperAttentionQueries,
              HopperAttentionSharedBytes(shape.head_dim),
              1,
              kHopperTileKeys,
              HopperBundleQueries(shape.num_heads / shape.num_kv_heads)};
    case AttentionKernel::kGeneric:
      break;
  }
  // Without tensor cores arithmetic takes longer than reading from the second query on.
  return {kGenericAttentionQueries, 1,
          GenericAttentionSharedBytes(shape.head_dim, shape.reproducible), 4};
}

}  // namespace

bool Supports(AttentionKernel kernel, const AttentionShapeInfo& shape,
              const AttentionDevice& device) {
  // Code for sm_90a runs on 9.0 and on nothing newer.
  if (kernel == AttentionKernel::kHopper &&
      (device.compute_capability != 90 || !HopperAttentionHas(shape))) {
    return false;
  }
  if (kernel == AttentionKernel::kMma &&
      (device.compute_capability < 80 || !MmaAttentionHas(shape.head_dim, shape.kv_dtype))) {
    return false;
  }
  return NeedsOf(kernel, shape).shared_bytes <= device.shared_bytes_per_block;
}

AttentionSetup SetUpAttention(const AttentionShapeInfo& shape, const AttentionDevice& device) {
  for (const AttentionKernel kernel : kAttentionKernels) {
    if (Supports(kernel, shape, device)) return SetUpAttention(kernel, shape, device);
  }
  return SetUpAttention(AttentionKernel::kGeneric, shape, device);
}

AttentionSetup SetUpAttention(AttentionKernel kernel, const AttentionShapeInfo& shape,
                              const AttentionDevice& device) {
  // What the system takes of each block's shared memory.
  constexpr size_t kReservedBytes = 1024;
  const KernelNeeds needs = NeedsOf(kernel, shape);
  const size_t by_shared_bytes =
      device.shared_bytes_per_multiprocessor / (needs.shared_bytes + kReservedBytes);
  const auto blocks = std::clamp(static_cast<int>(by_shared_bytes), 1, needs.blocks_by_registers);
  AttentionSetup setup;
  setup.kernel = kernel;
  setup.limits.num_heads = shape.num_heads;
  setup.limits.num_kv_heads = shape.num_kv_heads;
  setup.limits.chunk_tokens = shape.chunk_tokens;
  setup.limits.max_queries = needs.max_queries;
  setup.limits.free_queries = needs.free_queries;
  setup.limits.tile_keys = needs.tile_keys;
  setup.limits.bundle_queries = needs.bundle_queries;
  setup.limits.num_blocks = device.num_multiprocessors * blocks;
  setup.grid_blocks = setup.limits.num_blocks;
  return setup;
}

void LaunchChunkAttention(Stream& stream, const AttentionSetup& setup,
                          const ChunkAttentionLaunch& args) {
  const HeadBlocks head_blocks =
      MakeHeadBlocks(setup.limits.num_heads, setup.limits.num_kv_heads, setup.limits.max_queries);
  switch (setup.kernel) {
    case AttentionKernel::kGeneric:
      LaunchGenericAttention(stream, setup.grid_blocks, head_blocks, args);
      return;
    case AttentionKernel::kMma:
      LaunchMmaAttention(stream, setup.grid_blocks, head_blocks, args);
      return;
    case AttentionKernel::kHopper:
      LaunchHopperAttention(stream, setup.grid_blocks, head_blocks, args);
      return;
  }
}

}  // namespace refrain::kernels::cuda
