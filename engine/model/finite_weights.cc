#include "engine/model/finite_weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

namespace refrain::engine {
namespace {

using kernels::DType;

constexpr uint16_t kF16Exponent = 0x7c00;  // all ones: infinity or NaN
constexpr uint16_t kBf16Exponent = 0x7f80;
constexpr uint32_t kF32Exponent = 0x7f800000;

template <class Bits>
Bits LoadBits(const std::byte* data) {
  Bits bits;
  std::memcpy(&bits, data, sizeof(bits));
  return bits;
}

// The first of `count` values whose exponent is all ones; -1: none. Looks at a piece as a whole
// first, without a branch for each.
template <class Bits>
int64_t FindExponent(const std::byte* data, int64_t count, Bits exponent) {
  constexpr int64_t kPiece = 4096;
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, count);
    Bits largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      const Bits bits = LoadBits<Bits>(data + i * sizeof(Bits)) & exponent;
      largest = std::max(largest, bits);
    }
    if (largest != exponent) continue;
    for (int64_t i = begin; i < end; ++i) {
      if ((LoadBits<Bits>(data + i * sizeof(Bits)) & exponent) == exponent) return i;
    }
  }
  return -1;
}

// Where a block of this type has its scale and, if it has one, its minimum, all f16.
std::span<const int> HalvesOfBlock(DType dtype) {
  static constexpr std::array<int, 1> kScale = {0};
  static constexpr std::array<int, 2> kScaleAndMin = {0, 2};
  static constexpr std::array<int, 1> kScaleOfQ6K = {208};
  switch (dtype) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
      return kScale;
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return kScaleAndMin;
    case DType::kQ6_K:
      return kScaleOfQ6K;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:  // K and V only
      break;
  }
  return {};
}

// The first of `count` blocks with such a scale or minimum; -1: none.
int64_t FindBlock(const std::byte* data, int64_t count, int64_t block_bytes,
                  std::span<const int> halves) {
  for (int64_t i = 0; i < count; ++i) {
    for (const int offset : halves) {
      const auto bits = LoadBits<uint16_t>(data + i * block_bytes + offset);
      if ((bits & kF16Exponent) == kF16Exponent) return i;
    }
  }
  return -1;
}

}  // namespace

std::optional<NotFinite> FindNotFinite(const WeightView& weight) {
  const kernels::DTypeTraits& traits = kernels::Traits(weight.dtype);
  const int64_t blocks_per_row = weight.cols / traits.block_elements;
  const int64_t blocks = weight.rows * blocks_per_row;
  int64_t found = -1;
  switch (weight.dtype) {
    case DType::kF32:
      found = FindExponent<uint32_t>(weight.data, blocks, kF32Exponent);
      break;
    case DType::kF16:
      found = FindExponent<uint16_t>(weight.data, blocks, kF16Exponent);
      break;
    case DType::kBF16:
      found = FindExponent<uint16_t>(weight.data, blocks, kBf16Exponent);
      break;
    default:
      found = FindBlock(weight.data, blocks, traits.block_bytes, HalvesOfBlock(weight.dtype));
  }
  if (found < 0) return std::nullopt;
  return NotFinite{found / blocks_per_row, found % blocks_per_row * traits.block_elements};
}

bool HoldsOnlyZeros(const WeightView& weight) {
  return std::all_of(weight.data, weight.data + weight.bytes,
                     [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace refrain::engine
