#include "kernels/cuda/chunk_attention_hopper_kernel.h"

namespace refrain::kernels::cuda {

void LaunchHopperAttentionBf16(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                               const ChunkAttentionLaunch& args) {
  LaunchHopperOfType<BF16>(stream, grid_blocks, head_blocks, args);
}

}  // namespace refrain::kernels::cuda
