#include "kernels/cuda/dtype_visit.h"
#include "kernels/cuda/gemm_tile.h"

namespace refrain::kernels::cuda {

bool LaunchDenseTileGemm(Stream& stream, const GemmLaunch& args) {
  return VisitDType<DType::kF16, DType::kBF16>(
      args.weight.dtype, [&](auto dtype) { LaunchTileFor<dtype()>(stream, args); });
}

}  // namespace refrain::kernels::cuda
