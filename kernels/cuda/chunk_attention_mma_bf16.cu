#include "kernels/cuda/chunk_attention_mma_kernel.h"

namespace refrain::kernels::cuda {

void LaunchMmaAttentionBf16(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                            const ChunkAttentionLaunch& args) {
  LaunchMmaOfType<BF16>(stream, grid_blocks, head_blocks, args);
}

}  // namespace refrain::kernels::cuda
