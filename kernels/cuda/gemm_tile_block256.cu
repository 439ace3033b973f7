#include "kernels/cuda/dtype_visit.h"
#include "kernels/cuda/gemm_tile.h"

namespace refrain::kernels::cuda {

bool LaunchBlock256TileGemm(Stream& stream, const GemmLaunch& args) {
  return VisitDType<DType::kQ4_K, DType::kQ5_K, DType::kQ6_K>(
      args.weight.dtype, [&](auto dtype) { LaunchTileFor<dtype()>(stream, args); });
}

}  // namespace refrain::kernels::cuda
