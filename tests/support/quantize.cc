#include "tests/support/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>

#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"

namespace refrain::testing {
namespace {

using kernels::DType;
using kernels::F16ToF32;
using kernels::F32ToBf16;
using kernels::F32ToF16;

void AppendU16(std::string& out, uint16_t value) {
  out.push_back(static_cast<char>(value & 255));
  out.push_back(static_cast<char>(value >> 8));
}

// Appends the nearest half and returns what a reader will see.
float AppendF16(std::string& out, float value) {
  const uint16_t bits = F32ToF16(value);
  AppendU16(out, bits);
  return F16ToF32(bits);
}

int Nearest(float value, float unit, int low, int high) {
  if (unit == 0.0f) return std::clamp(0, low, high);
  return std::clamp(static_cast<int>(std::lround(value / unit)), low, high);
}

float MaxMagnitude(std::span<const float> x) {
  float largest = 0.0f;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// Elements i and i + 16 share a byte.
void AppendNibbles32(std::string& out, const std::array<int, 32>& quants) {
  for (int i = 0; i < 16; ++i) {
    out.push_back(static_cast<char>((quants[i] & 15) | ((quants[i + 16] & 15) << 4)));
  }
}

void AppendFifthBits(std::string& out, const std::array<int, 32>& quants) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>((quants[i] >> 4) & 1) << i;
  AppendU16(out, static_cast<uint16_t>(bits & 0xffff));
  AppendU16(out, static_cast<uint16_t>(bits >> 16));
}

void BlockQ8_0(std::span<const float> x, std::string& out) {
  const float d = AppendF16(out, MaxMagnitude(x) / 127.0f);
  for (const float value : x) out.push_back(static_cast<char>(Nearest(value, d, -127, 127)));
}

// Q4_0 and Q5_0: signed, around half the range.
void BlockSigned(std::span<const float> x, int bits, std::string& out) {
  const int half = 1 << (bits - 1);
  const float d = AppendF16(out, MaxMagnitude(x) / static_cast<float>(half - 1));
  std::array<int, 32> quants;
  for (int i = 0; i < 32; ++i) quants[i] = Nearest(x[i], d, -half, half - 1) + half;
  if (bits == 5) AppendFifthBits(out, quants);
  AppendNibbles32(out, quants);
}

// Q4_1 and Q5_1: from the smallest element up.
void BlockWithMin(std::span<const float> x, int bits, std::string& out) {
  const int top = (1 << bits) - 1;
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float d = AppendF16(out, (*high - *low) / static_cast<float>(top));
  const float m = AppendF16(out, *low);
  std::array<int, 32> quants;
  for (int i = 0; i < 32; ++i) quants[i] = Nearest(x[i] - m, d, 0, top);
  if (bits == 5) AppendFifthBits(out, quants);
  AppendNibbles32(out, quants);
}

void AppendScaleMins(std::string& out, const std::array<int, 8>& scales,
                     const std::array<int, 8>& mins) {
  std::array<int, 12> packed = {};
  for (int j = 0; j < 4; ++j) {
    packed[j] = scales[j] | ((scales[j + 4] >> 4) << 6);
    packed[j + 4] = mins[j] | ((mins[j + 4] >> 4) << 6);
    packed[j + 8] = (scales[j + 4] & 15) | ((mins[j + 4] & 15) << 4);
  }
  for (const int byte : packed) out.push_back(static_cast<char>(byte));
}

// Q4_K and Q5_K: eight groups of 32, each with a 6-bit scale and a 6-bit minimum.
void BlockK(std::span<const float> x, int bits, std::string& out) {
  const int top = (1 << bits) - 1;
  std::array<float, 8> group_scale, group_min;
  for (int g = 0; g < 8; ++g) {
    const auto group = x.subspan(32 * g, 32);
    const auto [low, high] = std::minmax_element(group.begin(), group.end());
    group_min[g] = std::max(0.0f, -*low);
    group_scale[g] = (*high + group_min[g]) / static_cast<float>(top);
  }
  const float d = AppendF16(
      out, std::max(0.0f, *std::max_element(group_scale.begin(), group_scale.end())) / 63.0f);
  const float dmin = AppendF16(out, *std::max_element(group_min.begin(), group_min.end()) / 63.0f);
  std::array<int, 8> scales, mins;
  std::array<int, 256> quants;
  for (int g = 0; g < 8; ++g) {
    scales[g] = Nearest(group_scale[g], d, 0, 63);
    mins[g] = Nearest(group_min[g], dmin, 0, 63);
    for (int i = 32 * g; i < 32 * (g + 1); ++i) {
      quants[i] = Nearest(x[i] + dmin * mins[g], d * scales[g], 0, top);
    }
  }
  AppendScaleMins(out, scales, mins);
  if (bits == 5) {
    for (int i = 0; i < 32; ++i) {
      int byte = 0;
      for (int g = 0; g < 8; ++g) byte |= (quants[32 * g + i] >> 4) << g;
      out.push_back(static_cast<char>(byte));
    }
  }
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      const int low = quants[64 * pair + i] & 15;
      const int high = quants[64 * pair + 32 + i] & 15;
      out.push_back(static_cast<char>(low | (high << 4)));
    }
  }
}

void BlockQ6_K(std::span<const float> x, std::string& out) {
  std::array<float, 16> group_scale;
  for (int g = 0; g < 16; ++g) group_scale[g] = MaxMagnitude(x.subspan(16 * g, 16)) / 31.0f;
  std::string scale_bytes;
  std::string tail;
  const float d =
      AppendF16(tail, *std::max_element(group_scale.begin(), group_scale.end()) / 127.0f);
  std::array<int, 256> quants;
  for (int g = 0; g < 16; ++g) {
    const int scale = Nearest(group_scale[g], d, 0, 127);
    scale_bytes.push_back(static_cast<char>(scale));
    for (int i = 16 * g; i < 16 * (g + 1); ++i) {
      quants[i] = Nearest(x[i], d * static_cast<float>(scale), -32, 31) + 32;
    }
  }
  std::string low, high;
  for (int half = 0; half < 2; ++half) {
    const int* q = quants.data() + 128 * half;
    for (int i = 0; i < 64; ++i)
      low.push_back(static_cast<char>((q[i] & 15) | ((q[i + 64] & 15) << 4)));
    for (int i = 0; i < 32; ++i) {
      high.push_back(static_cast<char>((q[i] >> 4) | ((q[i + 32] >> 4) << 2) |
                                       ((q[i + 64] >> 4) << 4) | ((q[i + 96] >> 4) << 6)));
    }
  }
  out += low + high + scale_bytes + tail;
}

void Block(DType dtype, std::span<const float> x, std::string& out) {
  switch (dtype) {
    case DType::kF32:
      AppendU16(out, static_cast<uint16_t>(std::bit_cast<uint32_t>(x[0]) & 0xffff));
      AppendU16(out, static_cast<uint16_t>(std::bit_cast<uint32_t>(x[0]) >> 16));
      return;
    case DType::kF16:
      return AppendU16(out, F32ToF16(x[0]));
    case DType::kBF16:
      return AppendU16(out, F32ToBf16(x[0]));
    case DType::kQ8_0:
      return BlockQ8_0(x, out);
    case DType::kQ4_0:
      return BlockSigned(x, 4, out);
    case DType::kQ4_1:
      return BlockWithMin(x, 4, out);
    case DType::kQ5_0:
      return BlockSigned(x, 5, out);
    case DType::kQ5_1:
      return BlockWithMin(x, 5, out);
    case DType::kQ4_K:
      return BlockK(x, 4, out);
    case DType::kQ5_K:
      return BlockK(x, 5, out);
    case DType::kQ6_K:
      return BlockQ6_K(x, out);
    case DType::kF8E4M3:  // not of weights
      break;
  }
}

}  // namespace

std::string QuantizeRow(DType dtype, std::span<const float> row) {
  const int block_elements = kernels::Traits(dtype).block_elements;
  assert(row.size() % block_elements == 0);
  std::string out;
  for (size_t i = 0; i < row.size(); i += block_elements) {
    Block(dtype, row.subspan(i, block_elements), out);
  }
  return out;
}

}  // namespace refrain::testing
