#include <immintrin.h>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_words.h"

namespace refrain::kernels::cpu {
namespace {

struct HardwareVnni {
  // VPDPWSSD. Not by its intrinsic: g++ 12 then moves sums from register to register and to memory
  // around every product.
  static __m512i Dot(__m512i sums, __m512i x, __m512i w) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(w));
    return sums;
  }
};

void Segment(const SegmentArgs& a) {
  if (!AttentionWords<HardwareVnni>::Takes(a)) return Avx512AttentionKernels().segment(a);
  AttentionWords<HardwareVnni>::Segment(a);
}

}  // namespace

AttentionKernels Avx512VnniAttentionKernels() {
  AttentionKernels kernels = Avx512AttentionKernels();
  kernels.uses_pairs = true;
  kernels.segment = Segment;
  return kernels;
}

}  // namespace refrain::kernels::cpu
