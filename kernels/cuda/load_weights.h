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

__device__ __forceinline__ uint32_t LoadWord(const std::byte* at) {  // 4-byte aligned
  return *reinterpret_cast<const uint32_t*>(at);
}
__device__ __forceinline__ uint16_t LoadShort(const std::byte* at) {  // 2-byte aligned
  return *reinterpret_cast<const uint16_t*>(at);
}
__device__ __forceinline__ float LoadHalf(const std::byte* at) {
  return HalfToFloat(LoadShort(at));
}
__device__ __forceinline__ int ByteOf(const uint32_t (&words)[2], int i) {
  return static_cast<int>(words[i / 4] >> (8 * (i % 4)) & 0xff);
}
__device__ __forceinline__ void LoadBytes8(const std::byte* at, uint32_t (&words)[2]) {
  words[0] = LoadWord(at);
  words[1] = LoadWord(at + 4);
}

// Scale and minimum of a group of 32 in Q4_K and Q5_K; `header` is the block's beginning.
__device__ __forceinline__ void GroupScaleMin(const std::byte* header, int group, float& scale,
                                              float& min) {
  const auto byte = [&](int i) { return static_cast<int>(header[4 + i]); };
  int packed_scale, packed_min;
  if (group < 4) {
    packed_scale = byte(group) & 63;
    packed_min = byte(group + 4) & 63;
  } else {
    const int low = byte(group + 4);
    packed_scale = (low & 15) | byte(group - 4) >> 6 << 4;
    packed_min = low >> 4 | byte(group) >> 6 << 4;
  }
  scale = __fmul_rn(LoadHalf(header), static_cast<float>(packed_scale));
  min = __fmul_rn(LoadHalf(header + 2), static_cast<float>(packed_min));
}

// Elements k to k + 7 of a row, k a multiple of 8. `side` is row + DeviceMatrix::side_bytes.
template <DType kDType>
__device__ __forceinline__ void LoadWeights8(const std::byte* row, const std::byte* side, int64_t k,
                                             float (&out)[8]) {
  constexpr BlockParts kParts = PartsOf(kDType);
  if constexpr (kDType == DType::kF32) {
    const auto* const at = reinterpret_cast<const float4*>(row + 4 * k);
    const float4 lo = at[0], hi = at[1];
    out[0] = lo.x, out[1] = lo.y, out[2] = lo.z, out[3] = lo.w;
    out[4] = hi.x, out[5] = hi.y, out[6] = hi.z, out[7] = hi.w;
  } else if constexpr (kDType == DType::kF16 || kDType == DType::kBF16) {
    const uint4 words = *reinterpret_cast<const uint4*>(row + 2 * k);
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto bits = static_cast<uint16_t>(pairs[i / 2] >> (16 * (i % 2)));
      out[i] = kDType == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
    }
  } else if constexpr (kDType == DType::kQ8_0) {
    uint32_t bytes[2];
    LoadBytes8(row + k, bytes);
    const float d = LoadHalf(side + k / 32 * kParts.side_bytes);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out[i] = __fmul_rn(static_cast<float>(static_cast<int8_t>(ByteOf(bytes, i))), d);
    }
  } else if constexpr (kDType == DType::kQ4_0 || kDType == DType::kQ4_1 || kDType == DType::kQ5_0 ||
                       kDType == DType::kQ5_1) {
    const int64_t block = k / 32;
    const int element = static_cast<int>(k % 32);
    const std::byte* const extra = side + block * kParts.side_bytes;
    constexpr bool kHasMin = kDType == DType::kQ4_1 || kDType == DType::kQ5_1;
    constexpr bool kHasFifth = kDType == DType::kQ5_0 || kDType == DType::kQ5_1;
    constexpr int kFifthAt = kHasMin ? 4 : 2;
    uint32_t bytes[2];
    LoadBytes8(row + block * 16 + element % 16, bytes);
    const float d = LoadHalf(extra);
    const float m = kHasMin ? LoadHalf(extra + 2) : 0.0f;
    uint32_t fifth = 0;
    if constexpr (kHasFifth) {
      fifth = (LoadShort(extra + kFifthAt) | static_cast<uint32_t>(LoadShort(extra + kFifthAt + 2))
                                                 << 16) >>
              element;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      int quant = element < 16 ? ByteOf(bytes, i) & 15 : ByteOf(bytes, i) >> 4;
      if constexpr (kHasFifth) quant |= static_cast<int>(fifth >> i & 1) << 4;
      if constexpr (kHasMin) {
        out[i] = __fadd_rn(__fmul_rn(static_cast<float>(quant), d), m);
      } else {
        out[i] = __fmul_rn(static_cast<float>(quant - (kHasFifth ? 16 : 8)), d);
      }
    }
  } else if constexpr (kDType == DType::kQ4_K || kDType == DType::kQ5_K) {
    const std::byte* const block = row + k / 256 * kParts.main_bytes;
    const int group = static_cast<int>(k % 256) / 32, element = static_cast<int>(k % 32);
    constexpr int kNibblesAt = kDType == DType::kQ4_K ? 16 : 48;
    float scale, min;
    GroupScaleMin(block, group, scale, min);
    uint32_t nibbles[2], fifth[2] = {0, 0};
    LoadBytes8(block + kNibblesAt + 32 * (group / 2) + element, nibbles);
    if constexpr (kDType == DType::kQ5_K) LoadBytes8(block + 16 + element, fifth);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      int quant = group % 2 == 0 ? ByteOf(nibbles, i) & 15 : ByteOf(nibbles, i) >> 4;
      if constexpr (kDType == DType::kQ5_K) quant |= (ByteOf(fifth, i) >> group & 1) << 4;
      out[i] = __fsub_rn(__fmul_rn(scale, static_cast<float>(quant)), min);
    }
  } else {
    static_assert(kDType == DType::kQ6_K);
    const std::byte* const block = row + k / 256 * kParts.main_bytes;
    const int in_block = static_cast<int>(k % 256);
    const int half = in_block / 128, group = in_block % 128 / 32, element = in_block % 32;
    uint32_t nibbles[2], high[2];
    LoadBytes8(block + 64 * half + 32 * (group % 2) + element, nibbles);
    LoadBytes8(block + 128 + 32 * half + element, high);
    const float scale =
        __fmul_rn(LoadHalf(side + k / 256 * kParts.side_bytes),
                  static_cast<float>(static_cast<int8_t>(block[192 + in_block / 16])));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int nibble = group < 2 ? ByteOf(nibbles, i) & 15 : ByteOf(nibbles, i) >> 4;
      const int quant = (nibble | (ByteOf(high, i) >> (2 * group) & 3) << 4) - 32;
      out[i] = __fmul_rn(scale, static_cast<float>(quant));
    }
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_LOAD_WEIGHTS_H_
