#include "kernels/cpu/attention_dot.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/bf16_instructions.h"

namespace refrain::kernels::cpu {
namespace {

void Segment(const SegmentArgs& a) {
  // f16 as at the level below: rounding it to bf16 would cost more than it gives.
  if (a.type != KvElementType::kBF16Pairs) return Avx512VnniAttentionKernels().segment(a);
  AttentionDot<HardwareBf16>::Segment(a);
}

}  // namespace

AttentionKernels Avx512Bf16AttentionKernels() {
  AttentionKernels kernels = Avx512VnniAttentionKernels();
  kernels.segment = Segment;
  return kernels;
}

}  // namespace refrain::kernels::cpu
