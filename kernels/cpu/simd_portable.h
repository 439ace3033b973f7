#ifndef REFRAIN_KERNELS_CPU_SIMD_PORTABLE_H_
#define REFRAIN_KERNELS_CPU_SIMD_PORTABLE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

// Vectors of floats for kernels that are written once and compiled per instruction-set level: a
// level's type has the members below. This one is plain C++ with the compilers' vector extension.
// See simd_avx512.h for why the namespace is unnamed.
namespace refrain::kernels::cpu {
namespace {

struct Portable {
  typedef float F __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  typedef uint32_t U __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kTileRows = 4;
  static constexpr int kTileVectors = 2;

  static F Zero() { return F{}; }
  static F Set1(float x) { return F{x, x, x, x}; }
  static F Load(const float* p) {
    F x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  // The first n elements, zeros behind; p[n] and on are not touched.
  static F LoadN(const float* p, int n) {
    F x{};
    for (int i = 0; i < n; ++i) x[i] = p[i];
    return x;
  }
  static void Store(float* p, F x) { std::memcpy(p, &x, sizeof(x)); }
  static void StoreN(float* p, F x, int n) {
    for (int i = 0; i < n; ++i) p[i] = x[i];
  }

  static F LoadF16(const uint16_t* p) {
    const U bits = {p[0], p[1], p[2], p[3]};
    const U sign = (bits & 0x8000) << 16;
    const U magnitude = bits & 0x7fff;
    // Exponent and mantissa moved into place are the value times 2^-112, subnormals included.
    const F scaled = reinterpret_cast<F>(magnitude << 13) * Set1(0x1p112f);
    const U special = reinterpret_cast<U>(magnitude >= 0x7c00);
    const U finite = reinterpret_cast<U>(scaled);
    const U value = (special & ((magnitude << 13) | 0x7f800000)) | (~special & finite);
    return reinterpret_cast<F>(value | sign);
  }
  static F LoadF16N(const uint16_t* p, int n) {
    uint16_t halves[kLanes] = {};
    for (int i = 0; i < n; ++i) halves[i] = p[i];
    return LoadF16(halves);
  }
  // Rounds to nearest even.
  static void StoreF16(uint16_t* p, F x) {
    for (int i = 0; i < kLanes; ++i) p[i] = ToF16(x[i]);
  }
  // Lane i of `even` and `odd` are the bf16 values p[2i] and p[2i + 1].
  static void LoadPairs(const uint16_t* p, F& even, F& odd) {
    U pairs;
    std::memcpy(&pairs, p, sizeof(pairs));
    even = reinterpret_cast<F>(pairs << 16);
    odd = reinterpret_cast<F>(pairs & 0xffff0000u);
  }
  // The first n pairs, zeros behind.
  static void LoadPairsN(const uint16_t* p, int n, F& even, F& odd) {
    uint16_t pairs[2 * kLanes] = {};
    for (int i = 0; i < 2 * n; ++i) pairs[i] = p[i];
    LoadPairs(pairs, even, odd);
  }

  // Lane i: the bf16 values of the E4M3 ones even[i], in the lower half, and odd[i].
  static void StoreE4m3Pairs(uint32_t* p, const uint8_t* even, const uint8_t* odd) {
    const U pairs = E4m3AsBf16(U{even[0], even[1], even[2], even[3]}) |
                    E4m3AsBf16(U{odd[0], odd[1], odd[2], odd[3]}) << 16;
    std::memcpy(p, &pairs, sizeof(pairs));
  }

  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  // a b + c, rounded once where the level has fused instructions.
  static F Fma(F a, F b, F c) { return a * b + c; }
  // b where either is NaN, as the x86 instructions have it.
  static F Max(F a, F b) { return a > b ? a : b; }
  static F Min(F a, F b) { return a < b ? a : b; }
  // To the nearest integer, for |x| < 2^22.
  static F Round(F x) {
    const F magic = Set1(12582912.0f);
    return (x + magic) - magic;
  }
  // x * 2^n for whole n in [-126, 127]; 0 where tested < limit (not where it is NaN).
  static F TimesPow2OrZero(F x, F n, F tested, F limit) {
    const I exponent = __builtin_convertvector(n, I) + 127;
    const F result = x * reinterpret_cast<F>(exponent << 23);
    return reinterpret_cast<F>(~reinterpret_cast<U>(tested < limit) & reinterpret_cast<U>(result));
  }
  // Lane i: p[i] > limit ? x : otherwise.
  static F WhereAbove(const int32_t* p, int32_t limit, F x, F otherwise) {
    I values;
    std::memcpy(&values, p, sizeof(values));
    return values > limit ? x : otherwise;
  }
  static float ReduceMax(F x) {
    const float a = x[0] > x[1] ? x[0] : x[1];
    const float b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
  }
  static float ReduceAdd(F x) { return (x[0] + x[2]) + (x[1] + x[3]); }

 private:
  static U E4m3AsBf16(U bits) {
    const U magnitude = bits & 0x7f;
    const U normal = (magnitude << 4) + (120 << 7);  // bias 7 to bias 127
    const F multiple = __builtin_convertvector(reinterpret_cast<I>(magnitude), F);
    const U subnormal = reinterpret_cast<U>(multiple * Set1(0x1p-9f)) >> 16;
    const U is_subnormal = reinterpret_cast<U>(magnitude < 8);
    const U nan = reinterpret_cast<U>(magnitude == 0x7f) & 0x7fc0;
    return (is_subnormal & subnormal) | (~is_subnormal & normal) | nan | (bits & 0x80) << 8;
  }
  static uint16_t ToF16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00 | static_cast<uint16_t>((bits >> 13) & 0x1ff);
    if (bits >= 0x477ff000) return sign | 0x7c00;  // 65520 and above round to infinity
    if (bits < 0x38800000) {                       // below 2^-14: a multiple of 2^-24
      float magnitude;
      std::memcpy(&magnitude, &bits, sizeof(magnitude));
      magnitude += 0.5f;  // the last place of [0.5, 1) is 2^-24
      std::memcpy(&bits, &magnitude, sizeof(bits));
      return sign | static_cast<uint16_t>(bits - 0x3f000000);
    }
    bits += 0xfff + ((bits >> 13) & 1);
    return sign | static_cast<uint16_t>((bits - 0x38000000) >> 13);
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_SIMD_PORTABLE_H_
