#include "kernels/cpu/attention_loops.h"
#include "kernels/cpu/simd_avx512.h"

namespace refrain::kernels::cpu {

const AttentionKernels kAttentionAvx512 = AttentionLoops<Avx512>::kTable;

}  // namespace refrain::kernels::cpu
