#include "kernels/cpu/elementwise_loops.h"
#include "kernels/cpu/simd_avx2.h"

namespace refrain::kernels::cpu {

const ElementwiseKernels kElementwiseAvx2 = ElementwiseLoops<Avx2>::kTable;

}  // namespace refrain::kernels::cpu
