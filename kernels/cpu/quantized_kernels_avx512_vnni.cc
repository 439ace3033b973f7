// AVX-512 with VNNI.

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_kernels_inl.h"
#include "kernels/cpu/quantized_vectors_vnni.h"

namespace refrain::kernels::cpu {

extern constinit const QuantizedKernels kQuantizedKernelsAvx512Vnni = KernelsFor<VnniVectors>();

}  // namespace refrain::kernels::cpu
