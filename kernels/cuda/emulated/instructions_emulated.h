#ifndef REFRAIN_KERNELS_CUDA_EMULATED_INSTRUCTIONS_EMULATED_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_INSTRUCTIONS_EMULATED_H_

// instructions.h on the emulated device; included by that header only.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/emulated/emulated_thread.h"

namespace refrain::kernels::cuda {

inline float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) {
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ff) << 13);
  }
  // As if the exponent had the f32 bias, then corrected: exact for subnormals too.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7fff);  // NaN
  if (magnitude >= 0x477ff000)
    return static_cast<uint16_t>(sign | 0x7c00);  // rounds past the largest
  if (magnitude < 0x38800000) {                   // subnormal or zero
    // Adding 0.5 leaves units of 2^-24 in the last place: the addition rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13);
}

inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T>
float ElementToFloat(uint16_t bits) {
  if constexpr (std::is_same_v<T, F16>) {
    return HalfToFloat(bits);
  } else {
    return Bf16ToFloat(bits);
  }
}

template <class T>
uint32_t PackPair(float lo, float hi) {
  if constexpr (std::is_same_v<T, F16>) {
    return FloatToHalf(lo) | static_cast<uint32_t>(FloatToHalf(hi)) << 16;
  } else {
    return FloatToBf16(lo) | static_cast<uint32_t>(FloatToBf16(hi)) << 16;
  }
}

inline float ExpTwo(float x) { return std::exp2(x); }

template <class T>
void MmaM16N8K16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  struct Operand {
    float* d;
    const uint32_t *a, *b;
  } operand{d, a, b};
  emulated::MeetWarp(~0u, "mma.m16n8k16", &operand, [](void* const* operands, uint32_t) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto& own = *static_cast<const Operand*>(operands[lane]);
      const int g = lane / 4, t = lane % 4;
      for (int half = 0; half < 2; ++half) {
        const auto element = [&](uint32_t pair) {
          return ElementToFloat<T>(static_cast<uint16_t>(pair >> (16 * half)));
        };
        a[g][2 * t + half] = element(own.a[0]);
        a[g + 8][2 * t + half] = element(own.a[1]);
        a[g][2 * t + 8 + half] = element(own.a[2]);
        a[g + 8][2 * t + 8 + half] = element(own.a[3]);
        b[2 * t + half][g] = element(own.b[0]);
        b[2 * t + 8 + half][g] = element(own.b[1]);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      const auto& own = *static_cast<const Operand*>(operands[lane]);
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i) {
        const int row = g + 8 * (i / 2), col = 2 * t + i % 2;
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][col];
        own.d[i] += sum;
      }
    }
  });
}

namespace emulated {

template <int kMatrices, bool kTransposed>
void LoadMatrices(uint32_t* r, const void* shared) {
  struct Operand {
    uint32_t* r;
    const uint16_t* row;
  } operand{r, static_cast<const uint16_t*>(shared)};
  if (CurrentThread().linear % 32 < 8 * kMatrices &&
      reinterpret_cast<uintptr_t>(shared) % 16 != 0) {
    FailKernel("ldmatrix: a row that is not 16-byte aligned");
  }
  if (CurrentThread().linear % 32 < 8 * kMatrices) {
    NoteAccess(shared, 16, AccessKind::kRead, __builtin_return_address(0));
  }
  MeetWarp(~0u, "ldmatrix", &operand, [](void* const* operands, uint32_t) {
    const auto lane_of = [&](int lane) -> const Operand& {
      return *static_cast<const Operand*>(operands[lane]);
    };
    uint32_t loaded[32][kMatrices];
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < kMatrices; ++i) {
        const uint16_t lo =
            kTransposed ? lane_of(8 * i + 2 * t).row[g] : lane_of(8 * i + g).row[2 * t];
        const uint16_t hi =
            kTransposed ? lane_of(8 * i + 2 * t + 1).row[g] : lane_of(8 * i + g).row[2 * t + 1];
        loaded[lane][i] = lo | static_cast<uint32_t>(hi) << 16;
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      std::memcpy(lane_of(lane).r, loaded[lane], sizeof(loaded[lane]));
    }
  });
}

}  // namespace emulated

inline void LoadMatrixX4(uint32_t (&r)[4], const void* shared) {
  emulated::LoadMatrices<4, false>(r, shared);
}
inline void LoadMatrixX4Transposed(uint32_t (&r)[4], const void* shared) {
  emulated::LoadMatrices<4, true>(r, shared);
}
inline void LoadMatrixX2(uint32_t (&r)[2], const void* shared) {
  emulated::LoadMatrices<2, false>(r, shared);
}
inline void LoadMatrixX2Transposed(uint32_t (&r)[2], const void* shared) {
  emulated::LoadMatrices<2, true>(r, shared);
}

inline void CopyAsync16(void* shared, const void* global, bool valid) {
  emulated::IssueCopy(shared, global, 16, valid);
}
inline void CopyAsyncCommit() { emulated::CommitCopies(); }
template <int kPending>
void CopyAsyncWait() {
  emulated::WaitForCopies(kPending);
}

inline void BarrierInit(uint64_t* barrier, int arrivals) {
  emulated::InitBarrier(barrier, arrivals);
}
inline void BarrierInitFence() {}
inline void BarrierExpectBytes(uint64_t* barrier, uint32_t bytes) {
  emulated::ArriveAtBarrier(barrier, bytes);
}
inline void BarrierArrive(uint64_t* barrier) { emulated::ArriveAtBarrier(barrier, 0); }
inline void BarrierWait(uint64_t* barrier, uint32_t parity) {
  emulated::WaitAtBarrier(barrier, parity);
}
inline void BulkCopyToShared(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  emulated::IssueBulkCopy(shared, global, bytes, barrier);
}
inline void FetchLine(const void*) {}
inline void AsyncProxyFence() { emulated::NoteProxyFence(); }
inline void LetDependentsStart() {}  // one kernel after the other
inline void WaitForKernelBefore() { emulated::NoteWaitForKernelBefore(); }
inline void NamedBarrierSync(int id, int threads) { emulated::SyncNamed(id, threads); }
inline void NamedBarrierArrive(int id, int threads) { emulated::ArriveNamed(id, threads); }
template <int kCount>
void RegistersIncrease() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0);
  emulated::IncreaseRegisters(kCount);
}
template <int kCount>
void RegistersDecrease() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0);
  emulated::DecreaseRegisters(kCount);
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_INSTRUCTIONS_EMULATED_H_
