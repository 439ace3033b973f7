// Plain C++: correct everywhere, and what the other levels are compared with.

#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_kernels_inl.h"

namespace refrain::kernels::cpu {
namespace {

struct Vectors {
  static constexpr int kLanes = 16;
  static constexpr int kGemmTiles = 1;
  static constexpr int kGemmRows = 2;
  static constexpr int kDirectRows = 6;
  static constexpr bool kShifted = true;
  static constexpr bool kFewRegisters = false;

  // Vector types of the compiler: it makes of them what the machine has.
  typedef float F __attribute__((vector_size(64)));
  typedef int32_t I __attribute__((vector_size(64)));
  typedef uint8_t Bytes __attribute__((vector_size(64)));
  typedef uint16_t Words __attribute__((vector_size(64)));
  // What wraps around: of activations that are not finite come sums that an int cannot hold.
  typedef uint32_t Wrapping __attribute__((vector_size(64)));

  static I Zero() { return I{}; }
  static I Set8(int x) { return (I)(Bytes{} + static_cast<uint8_t>(x)); }
  static I Set32(int x) { return I{} + x; }
  static I Load(const void* p) {
    I x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
  static void Store(void* p, I x) { __builtin_memcpy(p, &x, sizeof(x)); }
  static I Broadcast32(const void* p) {
    int32_t x;
    __builtin_memcpy(&x, p, sizeof(x));
    return I{} + x;
  }
  static I And(I x, I y) { return x & y; }
  static I Or(I x, I y) { return x | y; }
  static I Xor(I x, I y) { return x ^ y; }
  static I Add32(I x, I y) { return (I)((Wrapping)x + (Wrapping)y); }
  static I Sub32(I x, I y) { return (I)((Wrapping)x - (Wrapping)y); }
  template <int kCount>
  static I ShiftLeft16(I x) {
    return (I)((Words)x << kCount);
  }
  template <int kCount>
  static I ShiftRight16(I x) {
    return (I)((Words)x >> kCount);
  }
  template <int kCount>
  static I ShiftLeft32(I x) {
    return (I)((Wrapping)x << kCount);
  }
  template <int kCount>
  static I ShiftRightSigned32(I x) {
    return x >> kCount;
  }
  static I Dot(I sum, I w, I a) {
    typedef int8_t SignedBytes __attribute__((vector_size(64)));
    const Bytes u = (Bytes)w;
    const SignedBytes s = (SignedBytes)a;
    Wrapping total = (Wrapping)sum;
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 4 * lane; i < 4 * lane + 4; ++i) {
        total[lane] += static_cast<uint32_t>(u[i] * s[i]);
      }
    }
    return (I)total;
  }
  static I DotPair(I sum, I w0, I w1, I a0, I a1) { return Dot(Dot(sum, w0, a0), w1, a1); }

  static F SetF(float x) { return F{} + x; }
  static F BroadcastF(const float* p) { return F{} + *p; }
  static F LoadF(const float* p) {
    F x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
  static void StoreF(float* p, F x) { __builtin_memcpy(p, &x, sizeof(x)); }
  static F LoadN(const float* p, int lanes) {
    F x{};
    for (int i = 0; i < kLanes && i < lanes; ++i) x[i] = p[i];
    return x;
  }
  static void StoreN(float* p, F x, int lanes) {
    for (int i = 0; i < kLanes && i < lanes; ++i) p[i] = x[i];
  }
  static float HalfToFloat(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t rest = bits & 0x7fff;
    if (rest < 0x0400) {  // zero or subnormal: a multiple of 2^-24
      const float x = static_cast<float>(rest) * 5.9604644775390625e-8f;
      return sign != 0 ? -x : x;
    }
    const uint32_t exponent_bias = rest >= 0x7c00 ? (255 - 31) << 23 : (127 - 15) << 23;
    return __builtin_bit_cast(float, sign | ((rest << 13) + exponent_bias));
  }
  static F LoadF16(const void* p) {
    F x;
    for (int i = 0; i < kLanes; ++i) {
      uint16_t bits;
      __builtin_memcpy(&bits, static_cast<const uint8_t*>(p) + 2 * i, sizeof(bits));
      x[i] = HalfToFloat(bits);
    }
    return x;
  }
  static F LoadU8(const void* p) {
    F x;
    for (int i = 0; i < kLanes; ++i) x[i] = static_cast<const uint8_t*>(p)[i];
    return x;
  }
  static F LoadI8(const void* p) {
    F x;
    for (int i = 0; i < kLanes; ++i) x[i] = static_cast<const int8_t*>(p)[i];
    return x;
  }
  static F Add(F x, F y) { return x + y; }
  static F Mul(F x, F y) { return x * y; }
  static F Div(F x, F y) { return x / y; }
  static F Fma(F x, F y, F z) { return x * y + z; }  // rounds twice
  static F Abs(F x) { return (F)((I)x & 0x7fffffff); }
  static F Min(F x, F y) { return x < y ? x : y; }
  static F Max(F x, F y) { return x > y ? x : y; }
  static F MaxSize(F x, F y) { return (I)x > (I)y ? x : y; }
  static float ReduceMaxSize(F x) {
    const I bits = (I)x;
    int32_t max = bits[0];
    for (int i = 1; i < kLanes; ++i) max = bits[i] > max ? bits[i] : max;
    return __builtin_bit_cast(float, max);
  }
  static F ToFloat(I x) { return __builtin_convertvector(x, F); }
  static I Round(F x) {  // as processors do: what an int cannot hold becomes the least one
    I r;
    for (int i = 0; i < kLanes; ++i) {
      const float rounded = __builtin_rintf(x[i]);
      r[i] = rounded >= -0x1p31f && rounded < 0x1p31f ? static_cast<int32_t>(rounded) : INT32_MIN;
    }
    return r;
  }
  static int32_t ReduceAdd32(I x) {
    uint32_t sum = 0;
    for (int i = 0; i < kLanes; ++i) sum += static_cast<uint32_t>(x[i]);
    return static_cast<int32_t>(sum);
  }
  static void StoreI8(int8_t* p, I x) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(x[i]);
  }
  static F PowerOfTwo(I i) { return (F)((i + 127) << 23); }
  [[gnu::always_inline]] static void Prefetch(const void* p) { PrefetchToSecondLevel(p); }
  [[gnu::always_inline]] static void PrefetchToWrite(const void* p) { cpu::PrefetchToWrite(p); }
};

}  // namespace

extern constinit const QuantizedKernels kQuantizedKernelsPortable = KernelsFor<Vectors>();

}  // namespace refrain::kernels::cpu
