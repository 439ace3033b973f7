#include "kernels/cpu/attention_dot.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/bf16_instructions.h"

namespace refrain::kernels::cpu {
namespace {

void Segment(const SegmentArgs& a) {
  // f32 and f16 keep their precision: rounding them to bf16 would cost more than it gives.
  if (a.type != KvElementType::kBF16Pairs) return Avx512AttentionKernels().segment(a);
  AttentionDot<HardwareBf16>::Segment(a);
}

}  // namespace

AttentionKernels Avx512Bf16AttentionKernels() {
  AttentionKernels kernels = Avx512AttentionKernels();
  kernels.uses_pairs = true;
  kernels.segment = Segment;
  return kernels;
}

}  // namespace refrain::kernels::cpu
