#include "kernels/cpu/attention_loops.h"
#include "kernels/cpu/simd_avx512.h"

namespace refrain::kernels::cpu {

AttentionKernels Avx512AttentionKernels() { return AttentionLoops<Avx512>::kTable; }

}  // namespace refrain::kernels::cpu
