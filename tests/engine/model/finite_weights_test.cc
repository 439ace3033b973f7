#include "engine/model/finite_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/llama.h"
#include "engine/model/weight_source.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using kernels::DType;

constexpr int64_t kRows = 37, kCols = 512;  // more values than are looked at as one piece

// A weight whose every byte is the same; no exponent of all ones in any type.
struct Weight {
  explicit Weight(DType dtype) {
    view = {dtype, kRows, kCols, nullptr, kRows * *kernels::RowBytes(dtype, kCols)};
    bytes.assign(view.bytes, std::byte{0x37});
    view.data = bytes.data();
  }

  std::vector<std::byte> bytes;
  WeightView view;
};

// The values of one block of a type that can be infinite, by their place in the block and size.
struct Place {
  DType dtype;
  int offset;
  int bytes;
};

constexpr Place kPlaces[] = {
    {DType::kF32, 0, 4},  {DType::kF16, 0, 2},  {DType::kBF16, 0, 2},   {DType::kQ8_0, 0, 2},
    {DType::kQ4_0, 0, 2}, {DType::kQ4_1, 0, 2}, {DType::kQ4_1, 2, 2},   {DType::kQ5_0, 0, 2},
    {DType::kQ5_1, 0, 2}, {DType::kQ5_1, 2, 2}, {DType::kQ4_K, 0, 2},   {DType::kQ4_K, 2, 2},
    {DType::kQ5_K, 0, 2}, {DType::kQ5_K, 2, 2}, {DType::kQ6_K, 208, 2},
};

// Infinity, its negative, and two NaNs, as the upper 16 bits of an f32 or as an f16.
std::vector<uint32_t> Values(const Place& place) {
  if (place.dtype == DType::kF32) return {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001};
  if (place.dtype == DType::kBF16) return {0x7f80, 0xff80, 0x7fc0, 0x7f81};
  return {0x7c00, 0xfc00, 0x7e00, 0x7c01};
}

TEST(FiniteWeights, EveryValueOfEveryTypeIsLookedAt) {
  for (const Place& place : kPlaces) {
    const kernels::DTypeTraits& traits = kernels::Traits(place.dtype);
    const int64_t blocks = kRows * kCols / traits.block_elements;
    Weight weight(place.dtype);
    ASSERT_FALSE(FindNotFinite(weight.view).has_value()) << traits.name;
    for (const uint32_t value : Values(place)) {
      for (const int64_t block : {int64_t{0}, int64_t{1}, blocks / 2 + 1, blocks - 1}) {
        Weight broken(place.dtype);
        std::memcpy(&broken.bytes[block * traits.block_bytes + place.offset], &value, place.bytes);
        const std::optional<NotFinite> found = FindNotFinite(broken.view);
        ASSERT_TRUE(found.has_value()) << traits.name << " at " << place.offset << " of " << block;
        EXPECT_EQ(found->row * kCols + found->column, block * traits.block_elements);
      }
    }
  }
}

TEST(FiniteWeights, TheGreatestNumbersAreFinite) {
  for (const Place& place : kPlaces) {
    const kernels::DTypeTraits& traits = kernels::Traits(place.dtype);
    uint32_t value = 0x7bff;
    if (place.dtype == DType::kF32) value = 0x7f7fffff;
    if (place.dtype == DType::kBF16) value = 0x7f7f;
    Weight weight(place.dtype);
    std::memcpy(&weight.bytes[place.offset], &value, place.bytes);
    EXPECT_FALSE(FindNotFinite(weight.view).has_value()) << traits.name;
  }
}

// A quantised byte may be anything.
TEST(FiniteWeights, QuantsAreNotLookedAt) {
  for (const Place& place : kPlaces) {
    const kernels::DTypeTraits& traits = kernels::Traits(place.dtype);
    if (!traits.quantized) continue;
    Weight weight(place.dtype);
    for (int64_t block = 0; block < kRows * kCols / traits.block_elements; ++block) {
      std::byte* const begin = &weight.bytes[block * traits.block_bytes];
      const int scales = place.dtype == DType::kQ6_K ? 208 : 4;
      if (place.dtype == DType::kQ6_K) {
        std::memset(begin, 0xff, 208);
      } else {
        std::memset(begin + scales, 0xff, traits.block_bytes - scales);
      }
    }
    EXPECT_FALSE(FindNotFinite(weight.view).has_value()) << traits.name;
  }
}

// Loads a tiny model one of whose weights has `value` at `offset`; returns what it says.
absl::Status LoadBroken(TensorRole role, int layer, size_t offset, const std::string& value) {
  testing::TemporaryDirectory directory;
  const auto path = testing::WriteTinyGguf({}, directory.path());
  if (!path.ok()) return path.status();
  std::string file;
  {
    std::ifstream in(*path, std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(in), {});
    auto source = WeightSource::Open(*path);
    if (!source.ok()) return source.status();
    const WeightView view = *(*source)->Get(role, layer);
    const std::string_view bytes(reinterpret_cast<const char*>(view.data), view.bytes);
    file.replace(file.find(bytes) + offset, value.size(), value);
  }
  std::ofstream(*path, std::ios::binary) << file;
  auto source = WeightSource::Open(*path);
  if (!source.ok()) return source.status();
  auto backend = kernels::cpu::CpuBackend::Create({.threads = 1});
  return LlamaModel::Load(**source, **backend, {.max_rows = 7}).status();
}

TEST(FiniteWeights, AModelWithOthersIsRefused) {
  const std::string nan("\x00\x00\xc0\x7f", 4);
  const absl::Status matrix = LoadBroken(TensorRole::kFfnUp, 1, 0, nan);
  EXPECT_EQ(matrix.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(matrix.message(),
            "tensor blk.1.ffn_up.weight is damaged: row 0 has an infinity or NaN at column 0");
  const absl::Status vector = LoadBroken(TensorRole::kAttnNorm, 0, 8, nan);
  EXPECT_EQ(vector.message(),
            "tensor blk.0.attn_norm.weight is damaged: row 0 has an infinity or NaN at column 2");
}

TEST(FiniteWeights, OnlyZerosHasNoOtherByte) {
  Weight weight(DType::kQ8_0);
  EXPECT_FALSE(HoldsOnlyZeros(weight.view));
  std::memset(weight.bytes.data(), 0, weight.bytes.size());
  EXPECT_TRUE(HoldsOnlyZeros(weight.view));
  weight.bytes.back() = std::byte{1};
  EXPECT_FALSE(HoldsOnlyZeros(weight.view));
}

// Loads a tiny model one of whose weights is zeros.
absl::Status LoadWithZeros(TensorRole role, int layer) {
  const TensorShape shape = ShapeOf(role, testing::TinyConfig());
  return LoadBroken(role, layer, 0, std::string(shape.rows * shape.cols * sizeof(float), '\0'));
}

// A file that was given its size before its bytes came.
TEST(FiniteWeights, AModelWithAMatrixOrNormOfZerosIsRefused) {
  const absl::Status matrix = LoadWithZeros(TensorRole::kFfnUp, 1);
  EXPECT_EQ(matrix.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(matrix.message(),
            "tensor blk.1.ffn_up.weight holds nothing but zeros: the file may be downloaded in "
            "part only");
  for (const TensorRole role : {TensorRole::kTokenEmbedding, TensorRole::kOutputNorm,
                                TensorRole::kAttnNorm, TensorRole::kAttnK}) {
    EXPECT_EQ(LoadWithZeros(role, 0).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(FiniteWeights, ALayerThatPassesOnWhatItIsGivenIsNotRefused) {
  for (const TensorRole role : {TensorRole::kAttnOutput, TensorRole::kFfnDown}) {
    EXPECT_EQ(LoadWithZeros(role, 1), absl::OkStatus());
  }
}

}  // namespace
}  // namespace refrain::engine
