#ifndef REFRAIN_KERNELS_CUDA_EMULATED_DEVICE_NUMBERS_EMULATED_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_DEVICE_NUMBERS_EMULATED_H_

#include <bit>
#include <cmath>

// What CUDA's language has for numbers alone, for the host: bits, and arithmetic. Pure; part of
// device_language_emulated.h.

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) {
  return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline float __expf(float value) { return std::exp(value); }
inline float __logf(float value) { return std::log(value); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float value) { return 1.0f / value; }
// Never fused (nor are they by the host compiler: the emulated device is built without FMA).
// Byte i of the result is that of x and y, one behind the other, which nibble i of `selector`
// names.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned index = selector >> (4 * i) & 7;
    result |= static_cast<unsigned>(bytes >> (8 * index) & 0xff) << (8 * i);
  }
  return result;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_DEVICE_NUMBERS_EMULATED_H_
