#include "kernels/cuda/gemm.h"

#include "kernels/cuda/gemm_kernels.h"

namespace refrain::kernels::cuda {
namespace {

// Up to here one reading of the weights is all that the FMA kernel costs.
constexpr int64_t kFmaRows = 4;

}  // namespace

GemmKernel ChooseGemm(DType weight, int64_t rows) {
  return HasTileKernel(weight) && rows > kFmaRows ? GemmKernel::kTile : GemmKernel::kFma;
}

void LaunchGemm(Stream& stream, GemmKernel kernel, const GemmLaunch& args) {
  if (args.rows == 0 || args.weight.rows == 0) return;
  if (kernel == GemmKernel::kTile) {
    const bool launched = LaunchDenseTileGemm(stream, args) ||
                          LaunchBlock32TileGemm(stream, args) ||
                          LaunchBlock256TileGemm(stream, args);
    if (launched) return;
  }
  LaunchFmaGemm(stream, args);
}

}  // namespace refrain::kernels::cuda
