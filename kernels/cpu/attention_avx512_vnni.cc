#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_words.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vnni_instructions.h"

namespace refrain::kernels::cpu {
namespace {

void Segment(const SegmentArgs& a) {
  if (!AttentionWords<HardwareVnni>::Takes(a)) return Avx512AttentionKernels().segment(a);
  AttentionWords<HardwareVnni>::Segment(a);
}

}  // namespace

AttentionKernels Avx512VnniAttentionKernels() {
  AttentionKernels kernels = Avx512AttentionKernels();
  kernels.uses_pairs = true;
  kernels.segment = HasAvx512Fp16() ? Avx512VnniFp16Segment : Segment;
  return kernels;
}

}  // namespace refrain::kernels::cpu
