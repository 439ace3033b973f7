#ifndef REFRAIN_KERNELS_CPU_VNNI_INSTRUCTIONS_H_
#define REFRAIN_KERNELS_CPU_VNNI_INSTRUCTIONS_H_

#include <immintrin.h>

// The instruction of attention_words.h. Include only from files that are compiled for one level.
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

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_VNNI_INSTRUCTIONS_H_
