// AVX2, FMA and F16C.

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_kernels_inl.h"
#include "kernels/cpu/quantized_vectors_avx2.h"

namespace refrain::kernels::cpu {

extern constinit const QuantizedKernels kQuantizedKernelsAvx2 = KernelsFor<Avx2Vectors>();

}  // namespace refrain::kernels::cpu
