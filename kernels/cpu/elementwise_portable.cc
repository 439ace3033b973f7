#include "kernels/cpu/elementwise_loops.h"
#include "kernels/cpu/simd_portable.h"

namespace refrain::kernels::cpu {

const ElementwiseKernels kElementwisePortable = ElementwiseLoops<Portable>::kTable;

}  // namespace refrain::kernels::cpu
