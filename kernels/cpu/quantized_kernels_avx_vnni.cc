// AVX2, FMA, F16C and AVX-VNNI.

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_kernels_inl.h"
#include "kernels/cpu/quantized_vectors_avx_vnni.h"

namespace refrain::kernels::cpu {

extern constinit const QuantizedKernels kQuantizedKernelsAvxVnni =
    KernelsFor<AvxVnniVectors<VnniEncoding::kVex>>();

}  // namespace refrain::kernels::cpu
