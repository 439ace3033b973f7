// The kernels of AVX-VNNI for processors that have its dot product as part of AVX-512 VNNI only.

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_kernels_inl.h"
#include "kernels/cpu/quantized_vectors_avx_vnni.h"

namespace refrain::kernels::cpu {

extern constinit const QuantizedKernels kQuantizedKernelsAvxVnniEvex =
    KernelsFor<AvxVnniVectors<VnniEncoding::kEvex>>();

}  // namespace refrain::kernels::cpu
