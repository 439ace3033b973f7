#include "kernels/reference/dequantize.h"

#include <bit>
#include <cassert>

namespace refrain::kernels {
namespace {

uint8_t ByteAt(const std::byte* p) { return static_cast<uint8_t>(*p); }

// The file formats are little-endian, whatever the host.
uint16_t LoadU16(const std::byte* p) {
  return static_cast<uint16_t>(ByteAt(p) | (ByteAt(p + 1) << 8));
}

uint32_t LoadU32(const std::byte* p) {
  return LoadU16(p) | (static_cast<uint32_t>(LoadU16(p + 2)) << 16);
}

float LoadF16(const std::byte* p) { return F16ToF32(LoadU16(p)); }

// In the 32-element types, element i and element i + 16 share byte i: low nibble, high nibble.
int Nibble32(const std::byte* quants, int element) {
  const int byte = ByteAt(quants + element % 16);
  return element < 16 ? byte & 15 : byte >> 4;
}

// block: f16 d; int8 quants[32]
void BlockQ8_0(const std::byte* block, float* dst) {
  const float d = LoadF16(block);
  for (int i = 0; i < 32; ++i) dst[i] = static_cast<int8_t>(ByteAt(block + 2 + i)) * d;
}

// block: f16 d; nibbles[16]
void BlockQ4_0(const std::byte* block, float* dst) {
  const float d = LoadF16(block);
  for (int i = 0; i < 32; ++i) dst[i] = (Nibble32(block + 2, i) - 8) * d;
}

// block: f16 d; f16 m; nibbles[16]
void BlockQ4_1(const std::byte* block, float* dst) {
  const float d = LoadF16(block);
  const float m = LoadF16(block + 2);
  for (int i = 0; i < 32; ++i) {
    const float product = Nibble32(block + 4, i) * d;
    dst[i] = product + m;
  }
}

// block: f16 d; u32 fifth bits, element i in bit i; nibbles[16]
void BlockQ5_0(const std::byte* block, float* dst) {
  const float d = LoadF16(block);
  const uint32_t fifth = LoadU32(block + 2);
  for (int i = 0; i < 32; ++i) {
    const int high = static_cast<int>((fifth >> i) & 1) << 4;
    dst[i] = ((Nibble32(block + 6, i) | high) - 16) * d;
  }
}

// block: f16 d; f16 m; u32 fifth bits; nibbles[16]
void BlockQ5_1(const std::byte* block, float* dst) {
  const float d = LoadF16(block);
  const float m = LoadF16(block + 2);
  const uint32_t fifth = LoadU32(block + 4);
  for (int i = 0; i < 32; ++i) {
    const int high = static_cast<int>((fifth >> i) & 1) << 4;
    const float product = (Nibble32(block + 8, i) | high) * d;
    dst[i] = product + m;
  }
}

struct ScaleMin {
  int scale;
  int min;
};

// Q4_K and Q5_K keep 8 pairs of 6-bit (scale, min) in 12 bytes: pairs 0 to 3 in the low six bits of
// bytes 0..3 and 4..7; pairs 4 to 7 have their low four bits in bytes 8..11 and their high two in
// the top bits of the bytes of pair - 4.
ScaleMin UnpackScaleMin(const std::byte* scales, int pair) {
  if (pair < 4) return {ByteAt(scales + pair) & 63, ByteAt(scales + pair + 4) & 63};
  const int low = ByteAt(scales + pair + 4);
  return {(low & 15) | ((ByteAt(scales + pair - 4) >> 6) << 4),
          (low >> 4) | ((ByteAt(scales + pair) >> 6) << 4)};
}

// Element i of a 256-element K block lies in group i / 32. Groups 2j and 2j + 1 share the 32 bytes
// from 32 j on: low nibbles, high nibbles.
int NibbleK(const std::byte* quants, int group, int element) {
  const int byte = ByteAt(quants + 32 * (group / 2) + element);
  return group % 2 == 0 ? byte & 15 : byte >> 4;
}

// block: f16 d; f16 dmin; scales[12]; nibbles[128]
void BlockQ4_K(const std::byte* block, float* dst) {
  const float d = LoadF16(block);
  const float dmin = LoadF16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = UnpackScaleMin(block + 4, group);
    const float scale = d * packed.scale;
    const float min = dmin * packed.min;
    for (int i = 0; i < 32; ++i) {
      const float product = scale * NibbleK(block + 16, group, i);
      dst[32 * group + i] = product - min;
    }
  }
}

// block: f16 d; f16 dmin; scales[12]; fifth bits[32]: bit `group` of byte i; nibbles[128]
void BlockQ5_K(const std::byte* block, float* dst) {
  const float d = LoadF16(block);
  const float dmin = LoadF16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = UnpackScaleMin(block + 4, group);
    const float scale = d * packed.scale;
    const float min = dmin * packed.min;
    for (int i = 0; i < 32; ++i) {
      const int high = ((ByteAt(block + 16 + i) >> group) & 1) << 4;
      const float product = scale * (NibbleK(block + 48, group, i) | high);
      dst[32 * group + i] = product - min;
    }
  }
}

// block: low nibbles[128]; high pairs of bits[64]; int8 scales[16], one per 16 elements; f16 d.
// Each half of 128 elements has four groups of 32: groups 0 and 2 share 32 nibble bytes, so do 1
// and 3; the high bits of group g are bits 2g, 2g + 1 of the half's 32 bytes.
void BlockQ6_K(const std::byte* block, float* dst) {
  const float d = LoadF16(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + 64 * half;
    const std::byte* high = block + 128 + 32 * half;
    for (int group = 0; group < 4; ++group) {
      for (int i = 0; i < 32; ++i) {
        const int byte = ByteAt(low + 32 * (group % 2) + i);
        const int nibble = group < 2 ? byte & 15 : byte >> 4;
        const int quant = (nibble | (((ByteAt(high + i) >> (2 * group)) & 3) << 4)) - 32;
        const int element = 128 * half + 32 * group + i;
        const float scale = d * static_cast<int8_t>(ByteAt(block + 192 + element / 16));
        dst[element] = scale * quant;
      }
    }
  }
}

void Block(DType dtype, const std::byte* block, float* dst) {
  switch (dtype) {
    case DType::kF32:
      *dst = std::bit_cast<float>(LoadU32(block));
      return;
    case DType::kF16:
      *dst = LoadF16(block);
      return;
    case DType::kBF16:
      *dst = Bf16ToF32(LoadU16(block));
      return;
    case DType::kQ8_0:
      return BlockQ8_0(block, dst);
    case DType::kQ4_0:
      return BlockQ4_0(block, dst);
    case DType::kQ4_1:
      return BlockQ4_1(block, dst);
    case DType::kQ5_0:
      return BlockQ5_0(block, dst);
    case DType::kQ5_1:
      return BlockQ5_1(block, dst);
    case DType::kQ4_K:
      return BlockQ4_K(block, dst);
    case DType::kQ5_K:
      return BlockQ5_K(block, dst);
    case DType::kQ6_K:
      return BlockQ6_K(block, dst);
    case DType::kF8E4M3:
      *dst = E4m3ToF32(ByteAt(block));
      return;
  }
}

}  // namespace

float F16ToF32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (mantissa << 13));
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero or subnormal: exact
  return sign != 0 ? -magnitude : magnitude;
}

float Bf16ToF32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float E4m3ToF32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24;
  const uint32_t exponent = (bits >> 3) & 15;
  const uint32_t mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000);
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 127 - 7) << 23) | (mantissa << 20));
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;  // zero or subnormal
  return sign != 0 ? -magnitude : magnitude;
}

void DequantizeRow(DType dtype, const std::byte* src, int64_t elements, float* dst) {
  const DTypeTraits& traits = Traits(dtype);
  assert(elements % traits.block_elements == 0);
  for (int64_t i = 0; i < elements; i += traits.block_elements) {
    Block(dtype, src, dst + i);
    src += traits.block_bytes;
  }
}

}  // namespace refrain::kernels
