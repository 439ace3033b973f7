#include "kernels/cpu/elementwise_loops.h"
#include "kernels/cpu/simd_avx512.h"

namespace refrain::kernels::cpu {

const ElementwiseKernels kElementwiseAvx512 = ElementwiseLoops<Avx512>::kTable;

}  // namespace refrain::kernels::cpu
