#include "kernels/cuda/dtype_visit.h"
#include "kernels/cuda/gemm_tile.h"

namespace refrain::kernels::cuda {

bool LaunchBlock32TileGemm(Stream& stream, const GemmLaunch& args) {
  return VisitDType<DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1>(
      args.weight.dtype, [&](auto dtype) { LaunchTileFor<dtype()>(stream, args); });
}

}  // namespace refrain::kernels::cuda
