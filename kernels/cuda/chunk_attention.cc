#include "kernels/cuda/chunk_attention.h"

#include <algorithm>

#include "kernels/cuda/chunk_attention_generic.h"
#include "kernels/cuda/stream.h"

namespace refrain::kernels::cuda {

bool Supports(AttentionKernel kernel, const AttentionShapeInfo& shape,
              const AttentionDevice& device) {
  switch (kernel) {
    case AttentionKernel::kGeneric:
      return GenericAttentionSharedBytes(shape.head_dim, shape.reproducible) <=
             device.shared_bytes_per_block;
    case AttentionKernel::kMma:
    case AttentionKernel::kHopper:
      break;
  }
  return false;
}

AttentionSetup SetUpAttention(const AttentionShapeInfo& shape, const AttentionDevice& device) {
  for (const AttentionKernel kernel : {AttentionKernel::kHopper, AttentionKernel::kMma}) {
    if (Supports(kernel, shape, device)) return SetUpAttention(kernel, shape, device);
  }
  return SetUpAttention(AttentionKernel::kGeneric, shape, device);
}

AttentionSetup SetUpAttention(AttentionKernel kernel, const AttentionShapeInfo& shape,
                              const AttentionDevice& device) {
  AttentionSetup setup;
  setup.kernel = kernel;
  setup.limits.num_heads = shape.num_heads;
  setup.limits.num_kv_heads = shape.num_kv_heads;
  setup.limits.chunk_tokens = shape.chunk_tokens;
  setup.limits.max_queries = kGenericAttentionQueries;
  setup.limits.free_queries = 1;
  const size_t shared = GenericAttentionSharedBytes(shape.head_dim, shape.reproducible);
  const auto per_multiprocessor =
      std::clamp<size_t>(device.shared_bytes_per_multiprocessor / (shared + 1024), 1, 4);
  setup.limits.num_blocks = device.num_multiprocessors * static_cast<int>(per_multiprocessor);
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
    case AttentionKernel::kHopper:
      break;
  }
}

}  // namespace refrain::kernels::cuda
