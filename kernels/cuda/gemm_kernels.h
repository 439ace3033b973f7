#ifndef REFRAIN_KERNELS_CUDA_GEMM_KERNELS_H_
#define REFRAIN_KERNELS_CUDA_GEMM_KERNELS_H_

#include "kernels/cuda/gemm.h"

namespace refrain::kernels::cuda {

// The kernels behind LaunchGemm, by the files that instantiate them.
void LaunchFmaGemm(Stream& stream, const GemmLaunch& args);

// out = the sums of all splits, or +=.
void LaunchAddSplits(Stream& stream, const GemmLaunch& args);

// False where the weight's type is another file's.
bool LaunchDenseTileGemm(Stream& stream, const GemmLaunch& args);     // f16, bf16
bool LaunchBlock32TileGemm(Stream& stream, const GemmLaunch& args);   // q8_0 to q5_1
bool LaunchBlock256TileGemm(Stream& stream, const GemmLaunch& args);  // q4_k to q6_k

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_GEMM_KERNELS_H_
