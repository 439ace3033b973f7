#include "kernels/cpu/attention_loops.h"
#include "kernels/cpu/simd_avx2.h"

namespace refrain::kernels::cpu {

AttentionKernels Avx2AttentionKernels() { return AttentionLoops<Avx2>::kTable; }

}  // namespace refrain::kernels::cpu
