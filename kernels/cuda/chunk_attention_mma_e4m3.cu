#include "kernels/cuda/chunk_attention_mma_kernel.h"

namespace refrain::kernels::cuda {

void LaunchMmaAttentionE4m3(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                            const ChunkAttentionLaunch& args) {
  LaunchMmaOfType<E4M3>(stream, grid_blocks, head_blocks, args);
}

}  // namespace refrain::kernels::cuda
