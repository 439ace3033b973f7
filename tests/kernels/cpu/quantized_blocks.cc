#include "tests/kernels/cpu/quantized_blocks.h"

#include <random>

#include "kernels/reference/half_float.h"

namespace refrain::kernels::cpu {
namespace {

// Where a stored block has its f16 numbers.
std::vector<int> HalfOffsets(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

}  // namespace

std::vector<std::byte> RandomRows(DType dtype, int64_t rows, int64_t cols, uint32_t seed) {
  const DTypeTraits& traits = Traits(dtype);
  std::vector<std::byte> data(rows * *RowBytes(dtype, cols));
  std::mt19937 random(seed);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> scale(-0.02f, 0.02f);
  for (size_t block = 0; block < data.size(); block += traits.block_bytes) {
    for (const int offset : HalfOffsets(dtype)) {
      const uint16_t half = F32ToF16(scale(random));
      data[block + offset] = static_cast<std::byte>(half);
      data[block + offset + 1] = static_cast<std::byte>(half >> 8);
    }
  }
  return data;
}

std::vector<float> RandomFloats(int64_t count, uint32_t seed) {
  std::vector<float> x(count);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(random);
  return x;
}

std::vector<DType> QuantizedTypes() {
  std::vector<DType> types;
  for (const DTypeTraits& traits : kDTypes) {
    if (traits.quantized) types.push_back(traits.dtype);
  }
  return types;
}

}  // namespace refrain::kernels::cpu
