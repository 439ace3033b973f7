#include "kernels/cpu/amx_instructions.h"
#include "kernels/cpu/dense_amx_tile.h"
#include "kernels/cpu/dense_kernels.h"

namespace refrain::kernels::cpu {
namespace {

void MultiplyAmx(const DenseAmxProduct& product) { AmxProduct<HardwareTiles>(product).Run(); }

}  // namespace

DenseKernels AmxDenseKernels() {
  DenseKernels kernels = Avx512Bf16DenseKernels();
  kernels.amx = MultiplyAmx;
  return kernels;
}

}  // namespace refrain::kernels::cpu
