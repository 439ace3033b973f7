#ifndef REFRAIN_KERNELS_CPU_ELEMENTWISE_LOOPS_H_
#define REFRAIN_KERNELS_CPU_ELEMENTWISE_LOOPS_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/elementwise_kernels.h"
#include "kernels/cpu/simd_math.h"

// The loops of ElementwiseKernels over a level's vector type. Include only from files that are
// compiled for one level.
namespace refrain::kernels::cpu {

template <class S>
struct ElementwiseLoops {
  using F = typename S::F;
  static constexpr int64_t L = S::kLanes;

  static void RmsNorm(const float* x, const float* weight, float* out, int64_t n, double eps) {
    F sums[4] = {S::Zero(), S::Zero(), S::Zero(), S::Zero()};
    int64_t i = 0;
    for (; i + 4 * L <= n; i += 4 * L) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const F v = S::Load(x + i + j * L);
        sums[j] = S::Fma(v, v, sums[j]);
      }
    }
    for (; i < n; i += L) {
      const F v = i + L <= n ? S::Load(x + i) : S::LoadN(x + i, static_cast<int>(n - i));
      sums[0] = S::Fma(v, v, sums[0]);
    }
    const float squares = S::ReduceAdd(S::Add(S::Add(sums[0], sums[1]), S::Add(sums[2], sums[3])));
    const double mean = static_cast<double>(squares) / static_cast<double>(n);
    const F scale = S::Set1(static_cast<float>(1.0 / __builtin_sqrt(mean + eps)));
    for (i = 0; i + L <= n; i += L) {
      S::Store(out + i, S::Mul(S::Mul(S::Load(x + i), scale), S::Load(weight + i)));
    }
    if (i < n) {
      const int rest = static_cast<int>(n - i);
      S::StoreN(out + i, S::Mul(S::Mul(S::LoadN(x + i, rest), scale), S::LoadN(weight + i, rest)),
                rest);
    }
  }

  static void SwiGlu(const float* gate, const float* up, float* out, int64_t n) {
    int64_t i = 0;
    for (; i + L <= n; i += L) {
      S::Store(out + i, S::Mul(Silu<S>(S::Load(gate + i)), S::Load(up + i)));
    }
    if (i < n) {
      const int rest = static_cast<int>(n - i);
      S::StoreN(out + i, S::Mul(Silu<S>(S::LoadN(gate + i, rest)), S::LoadN(up + i, rest)), rest);
    }
  }

  static void Add(float* x, const float* y, int64_t n) {
    int64_t i = 0;
    for (; i + L <= n; i += L) S::Store(x + i, S::Add(S::Load(x + i), S::Load(y + i)));
    if (i < n) {
      const int rest = static_cast<int>(n - i);
      S::StoreN(x + i, S::Add(S::LoadN(x + i, rest), S::LoadN(y + i, rest)), rest);
    }
  }

  static void Rotate(float* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin,
                     int64_t half) {
    for (float* const end = x + heads * head_dim; x != end; x += head_dim) {
      int64_t i = 0;
      for (; i + L <= half; i += L) {
        RotateVector(S::Load(x + i), S::Load(x + half + i), S::Load(cos + i), S::Load(sin + i),
                     [&](F a, F b) {
                       S::Store(x + i, a);
                       S::Store(x + half + i, b);
                     });
      }
      if (i < half) {
        const int rest = static_cast<int>(half - i);
        RotateVector(S::LoadN(x + i, rest), S::LoadN(x + half + i, rest), S::LoadN(cos + i, rest),
                     S::LoadN(sin + i, rest), [&](F a, F b) {
                       S::StoreN(x + i, a, rest);
                       S::StoreN(x + half + i, b, rest);
                     });
      }
    }
  }

  static void ToF16(const float* x, uint16_t* out, int64_t n) {
    int64_t i = 0;
    for (; i + L <= n; i += L) S::StoreF16(out + i, S::Load(x + i));
    if (i < n) {
      uint16_t halves[L];
      S::StoreF16(halves, S::LoadN(x + i, static_cast<int>(n - i)));
      for (int64_t j = i; j < n; ++j) out[j] = halves[j - i];
    }
  }

  static void ToBf16(const float* x, uint16_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      uint32_t bits;
      std::memcpy(&bits, x + i, sizeof(bits));
      const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      const uint32_t quiet_nan = (bits >> 16) | 0x40;
      out[i] = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
    }
  }

  // Without branches, so that the compiler makes vectors of it.
  static void ToE4m3(const float* x, uint8_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      uint32_t bits;
      std::memcpy(&bits, x + i, sizeof(bits));
      const uint32_t magnitude = bits & 0x7fffffff;
      const uint32_t normal = (magnitude + 0x7ffff + ((magnitude >> 20) & 1) - (120u << 23)) >> 20;
      // Adding 2^14 leaves units of 2^-9, of which subnormals are multiples, in the last place.
      float shifted;
      std::memcpy(&shifted, &magnitude, sizeof(shifted));
      shifted += 0x1p14f;
      uint32_t subnormal;
      std::memcpy(&subnormal, &shifted, sizeof(subnormal));
      uint32_t code = magnitude < 0x3c800000 ? subnormal - 0x46800000 : normal;  // below 2^-6
      code = magnitude >= 0x43e00000 ? 0x7e : code;                              // 448
      code = magnitude > 0x7f800000 ? 0x7f : code;
      out[i] = static_cast<uint8_t>(((bits >> 24) & 0x80) | code);
    }
  }

  static float Bound(const float* x, const float* norms, int64_t n, float by_norm,
                     float* ceilings) {
    constexpr int64_t kTile = 16;
    const F factor = S::Set1(by_norm);
    F floors[kTile / L];
    for (F& floor : floors) floor = S::Set1(-__builtin_inff());
    int64_t i = 0;
    for (; i + kTile <= n; i += kTile) {
      F most = S::Set1(-__builtin_inff());
#pragma GCC unroll 4
      for (int64_t part = 0; part < kTile / L; ++part) {
        const F product = S::Load(x + i + part * L);
        const F off = S::Mul(S::Load(norms + i + part * L), factor);
        most = S::Max(S::Add(product, off), most);
        floors[part] = S::Max(S::Sub(product, off), floors[part]);
      }
      ceilings[i / kTile] = S::ReduceMax(most);
    }
    float floor = S::ReduceMax(floors[0]);
    for (const F& others : floors) {
      const float other = S::ReduceMax(others);
      floor = other > floor ? other : floor;
    }
    float ceiling = -__builtin_inff();
    for (int64_t j = i; j < n; ++j) {
      const float off = by_norm * norms[j];
      if (x[j] - off > floor) floor = x[j] - off;
      if (x[j] + off > ceiling) ceiling = x[j] + off;
    }
    if (i < n) ceilings[i / kTile] = ceiling;
    return floor;
  }

  static constexpr ElementwiseKernels kTable = {
      .rms_norm = RmsNorm,
      .swiglu = SwiGlu,
      .add = Add,
      .rotate = Rotate,
      .to_f16 = ToF16,
      .to_bf16 = ToBf16,
      .to_e4m3 = ToE4m3,
      .bound = Bound,
  };

 private:
  template <class Sink>
  static void RotateVector(F a, F b, F cos, F sin, const Sink& sink) {
    sink(S::Sub(S::Mul(a, cos), S::Mul(b, sin)), S::Fma(a, sin, S::Mul(b, cos)));
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ELEMENTWISE_LOOPS_H_
