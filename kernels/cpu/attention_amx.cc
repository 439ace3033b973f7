#include "kernels/cpu/amx_instructions.h"
#include "kernels/cpu/attention_amx_tile.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/bf16_instructions.h"

namespace refrain::kernels::cpu {
namespace {

using AmxSegment = AttentionAmx<HardwareBf16, HardwareTiles>;

void Segment(const SegmentArgs& a) {
  if (!AmxSegment::Takes(a)) return Avx512Bf16AttentionKernels().segment(a);
  AmxSegment::Segment(a);
}

}  // namespace

AttentionKernels AmxAttentionKernels() {
  AttentionKernels kernels = Avx512Bf16AttentionKernels();
  kernels.segment = Segment;
  kernels.shares_by_keys = true;
  return kernels;
}

}  // namespace refrain::kernels::cpu
