#ifndef REFRAIN_KERNELS_CUDA_LOAD_WEIGHTS_H_
#define REFRAIN_KERNELS_CUDA_LOAD_WEIGHTS_H_

// Device code: weights of a DeviceMatrix as floats, eight elements at a time. Products and sums are
// rounded as in kernels/reference/dequantize.cc, so the values are the same bit for bit. For .cu
// files only.

#include <cstdint>
#include <cstring>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/device_matrix.h"
#include "kernels/cuda/instructions.h"

namespace refrain::kernels::cuda {

__device__ __forceinline__ uint16_t LoadShort(const std::byte* at) {  // 2-byte aligned
  return *reinterpret_cast<const uint16_t*>(at);
}
__device__ __forceinline__ float LoadHalf(const std::byte* at) {
  return HalfToFloat(LoadShort(at));
}
__device__ __forceinline__ void LoadBytes8(const std::byte* at, uint32_t (&words)[2]) {
  const uint2 both = *reinterpret_cast<const uint2*>(at);  // 8-byte aligned
  words[0] = both.x, words[1] = both.y;
}

// Byte i of the words less kBias, as a float: put below the exponent of 2^23 a whole number of 23
// bits is one, and the subtraction is exact. Two instructions, where taking the byte out and
// converting it is three, one of them slow.
template <int kBias>
__device__ __forceinline__ float FloatOfByte(const uint32_t (&words)[2], int i) {
  constexpr uint32_t kTwoTo23 = 0x4b000000u;
  const uint32_t bits = __byte_perm(words[i / 4], kTwoTo23, 0x7440u | static_cast<uint32_t>(i % 4));
  return __fadd_rn(__uint_as_float(bits), -(8388608.0f + kBias));
}

// Nibbles, the low or the high ones, of eight bytes.
__device__ __forceinline__ void TakeNibbles(bool high, uint32_t (&words)[2]) {
  const int shift = high ? 4 : 0;
#pragma unroll
  for (uint32_t& word : words) word = word >> shift & 0x0f0f0f0fu;
}

// Bits 0 to 3 as bit 4 of four bytes.
__device__ __forceinline__ uint32_t SpreadBits(uint32_t bits) {
  // Bit i to bit 8 i, by copies 7 bits apart.
  return ((bits & 15u) * 0x00204081u & 0x01010101u) << 4;
}

// Scale and minimum of a group of 32 in Q4_K and Q5_K; `header` is the block's beginning.
__device__ __forceinline__ void GroupScaleMin(const std::byte* header, int group, float& scale,
                                              float& min) {
  const uint4 words = *reinterpret_cast<const uint4*>(header);  // d, dmin, 12 bytes of scales
  const int shift = 8 * (group % 4);
  const uint32_t first = words.y >> shift, second = words.z >> shift, third = words.w >> shift;
  uint32_t packed_scale = first & 63u, packed_min = second & 63u;
  if (group >= 4) {
    packed_scale = (third & 15u) | (first >> 2 & 48u);
    packed_min = (third >> 4 & 15u) | (second >> 2 & 48u);
  }
  const float d = HalfToFloat(static_cast<uint16_t>(words.x));
  const float d_min = HalfToFloat(static_cast<uint16_t>(words.x >> 16));
  scale = __fmul_rn(d, static_cast<float>(packed_scale));
  min = __fmul_rn(d_min, static_cast<float>(packed_min));
}

// Elements `element` to `element` + 7 (a multiple of 8, below 256) of the row's 256 from
// 256 * `stretch` on. What follows from `element` alone a loop over stretches computes once. `side`
// is row + DeviceMatrix::side_bytes.
template <DType kDType>
__device__ __forceinline__ void LoadWeights8(const std::byte* row, const std::byte* side,
                                             int64_t stretch, int element, float (&out)[8]) {
  constexpr BlockParts kParts = PartsOf(kDType);
  if constexpr (kDType == DType::kF32) {
    const auto* const at = reinterpret_cast<const float4*>(row + 1024 * stretch + 4 * element);
    const float4 lo = at[0], hi = at[1];
    out[0] = lo.x, out[1] = lo.y, out[2] = lo.z, out[3] = lo.w;
    out[4] = hi.x, out[5] = hi.y, out[6] = hi.z, out[7] = hi.w;
  } else if constexpr (kDType == DType::kF16 || kDType == DType::kBF16) {
    const uint4 words = *reinterpret_cast<const uint4*>(row + 512 * stretch + 2 * element);
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto bits = static_cast<uint16_t>(pairs[i / 2] >> (16 * (i % 2)));
      out[i] = kDType == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
    }
  } else if constexpr (kDType == DType::kQ8_0) {
    uint32_t bytes[2];
    LoadBytes8(row + 256 * stretch + element, bytes);
    // Signed bytes plus 128.
    bytes[0] ^= 0x80808080u, bytes[1] ^= 0x80808080u;
    const float d = LoadHalf(side + (8 * stretch + element / 32) * kParts.side_bytes);
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = __fmul_rn(FloatOfByte<128>(bytes, i), d);
  } else if constexpr (kDType == DType::kQ4_0 || kDType == DType::kQ4_1 || kDType == DType::kQ5_0 ||
                       kDType == DType::kQ5_1) {
    const int in_block = element % 32;
    const std::byte* const extra = side + (8 * stretch + element / 32) * kParts.side_bytes;
    constexpr bool kHasMin = kDType == DType::kQ4_1 || kDType == DType::kQ5_1;
    constexpr bool kHasFifth = kDType == DType::kQ5_0 || kDType == DType::kQ5_1;
    constexpr int kFifthAt = kHasMin ? 4 : 2;
    constexpr int kBias = kHasFifth ? 16 : 8;
    uint32_t bytes[2];
    LoadBytes8(row + 128 * stretch + element / 32 * 16 + in_block % 16, bytes);
    TakeNibbles(in_block >= 16, bytes);
    const float d = LoadHalf(extra);
    const float m = kHasMin ? LoadHalf(extra + 2) : 0.0f;
    if constexpr (kHasFifth) {
      const uint32_t fifth = (LoadShort(extra + kFifthAt) |
                              static_cast<uint32_t>(LoadShort(extra + kFifthAt + 2)) << 16) >>
                             in_block;
      bytes[0] |= SpreadBits(fifth);
      bytes[1] |= SpreadBits(fifth >> 4);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (kHasMin) {
        out[i] = __fadd_rn(__fmul_rn(FloatOfByte<0>(bytes, i), d), m);
      } else {
        out[i] = __fmul_rn(FloatOfByte<kBias>(bytes, i), d);
      }
    }
  } else if constexpr (kDType == DType::kQ4_K || kDType == DType::kQ5_K) {
    const std::byte* const block = row + stretch * kParts.main_bytes;
    const int group = element / 32, in_group = element % 32;
    constexpr int kNibblesAt = kDType == DType::kQ4_K ? 16 : 48;
    float scale, min;
    GroupScaleMin(block, group, scale, min);
    uint32_t bytes[2];
    LoadBytes8(block + kNibblesAt + 32 * (group / 2) + in_group, bytes);
    TakeNibbles(group % 2 == 1, bytes);
    if constexpr (kDType == DType::kQ5_K) {
      uint32_t fifth[2];
      LoadBytes8(block + 16 + in_group, fifth);
      bytes[0] |= (fifth[0] >> group & 0x01010101u) << 4;
      bytes[1] |= (fifth[1] >> group & 0x01010101u) << 4;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out[i] = __fsub_rn(__fmul_rn(scale, FloatOfByte<0>(bytes, i)), min);
    }
  } else {
    static_assert(kDType == DType::kQ6_K);
    const std::byte* const block = row + stretch * kParts.main_bytes;
    const int half = element / 128, group = element % 128 / 32, in_group = element % 32;
    uint32_t bytes[2], high[2];
    LoadBytes8(block + 64 * half + 32 * (group % 2) + in_group, bytes);
    LoadBytes8(block + 128 + 32 * half + in_group, high);
    TakeNibbles(group >= 2, bytes);
    bytes[0] |= (high[0] >> (2 * group) & 0x03030303u) << 4;
    bytes[1] |= (high[1] >> (2 * group) & 0x03030303u) << 4;
    const float scale =
        __fmul_rn(LoadHalf(side + stretch * kParts.side_bytes),
                  static_cast<float>(static_cast<int8_t>(block[192 + element / 16])));
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = __fmul_rn(scale, FloatOfByte<32>(bytes, i));
  }
}

// Elements k to k + 7 of a row, k a multiple of 8.
template <DType kDType>
__device__ __forceinline__ void LoadWeights8(const std::byte* row, const std::byte* side, int64_t k,
                                             float (&out)[8]) {
  LoadWeights8<kDType>(row, side, k >> 8, static_cast<int>(k & 255), out);
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_LOAD_WEIGHTS_H_
