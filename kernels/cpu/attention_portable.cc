#include "kernels/cpu/attention_loops.h"
#include "kernels/cpu/simd_portable.h"

namespace refrain::kernels::cpu {

AttentionKernels PortableAttentionKernels() { return AttentionLoops<Portable>::kTable; }

}  // namespace refrain::kernels::cpu
