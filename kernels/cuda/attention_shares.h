#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_SHARES_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_SHARES_H_

#include <cstdint>

namespace refrain::kernels::cuda {

// What a tile list's number of shares is chosen from. Costs have one unit, and are of one head
// block.
struct ShareCosts {
  int64_t total = 0;  // uncut
  int64_t cut = 0;    // that a share more adds: a tile beside its keys
  int64_t least = 1;  // shares of less are not worth a merge
};

// The number of shares with which the thread block that has most to do is through first, where
// `num_blocks` of them run at once and take an item for each share and head block in turn (see
// AttentionTileList): so many rounds, each of one share. At least 1.
int NumShares(const ShareCosts& costs, int num_head_blocks, int num_blocks);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_SHARES_H_
