#include "kernels/cpu/attention_half_operands.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_words.h"
#include "kernels/cpu/vnni_instructions.h"

namespace refrain::kernels::cpu {

void Avx512VnniFp16Segment(const SegmentArgs& a) {
  using Words = AttentionWords<HardwareVnni, HalfOperands>;
  if (!Words::Takes(a)) return Avx512AttentionKernels().segment(a);
  Words::Segment(a);
}

}  // namespace refrain::kernels::cpu
