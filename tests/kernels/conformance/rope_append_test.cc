#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "kernels/reference/kv_element.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/conformance/kv_pool.h"

namespace refrain::kernels {
namespace {

struct RopeShape {
  int64_t rows;
  int num_heads, num_kv_heads, head_dim, rope_dim, chunk_tokens;
};

const RopeShape kRopeShapes[] = {
    {1, 9, 3, 64, 64, 64},     {4, 2, 1, 8, 8, 16},     {5, 3, 3, 16, 16, 16},
    {31, 4, 2, 40, 40, 32},    {67, 4, 1, 80, 32, 64},  {129, 2, 2, 96, 96, 64},
    {33, 8, 1, 128, 128, 128}, {17, 2, 1, 256, 64, 16}, {3, 1, 1, 10, 6, 16},
    {37, 2, 1, 10, 6, 16},     {37, 2, 1, 14, 14, 32},  {37, 2, 1, 18, 0, 16},
};

// What one rotation in f32 and the rounding to the KV type may cost, relative to a value near 1: a
// unit in the type's last place, where the rotation fell on the other side of a half. (That levels
// round to the nearest E4M3 number: tests/kernels/cpu/e4m3_test.)
double Tolerance(DType kv_dtype) {
  switch (kv_dtype) {
    case DType::kF32:
      return 2e-6;
    case DType::kF16:
      return 1e-3;
    case DType::kF8E4M3:
      return 0x1p-3;
    default:
      return 8e-3;
  }
}

using Param = std::tuple<BackendCase, RopeShape, DType>;

// Where rows go, of `num_chunks` chunks.
using Places = std::vector<KvSlotRef>;

Places EveryPlace(const RopeShape& shape, int32_t num_chunks) {
  Places places;
  for (int32_t chunk = 0; chunk < num_chunks; ++chunk) {
    for (int32_t token = 0; token < shape.chunk_tokens; ++token) places.push_back({chunk, token});
  }
  return places;
}

// Tokens all over the pool, in no order.
Places ScatteredPlaces(const RopeShape& shape, int32_t num_chunks) {
  Places places = EveryPlace(shape, num_chunks);
  std::mt19937 random(5);
  std::shuffle(places.begin(), places.end(), random);
  places.resize(shape.rows);
  // Some rows, the first and the last of many among them, are written nowhere.
  for (int64_t r = 0; shape.rows >= 4 && r < shape.rows; r += 3) places[r] = kWriteNowhere;
  return places;
}

// Stretches of several sequences, each within a chunk of its own or to its end, none of a length or
// at a token that anything is a multiple of, some tokens left out; of one the middle is written
// nowhere.
Places PlacesInStretches(const RopeShape& shape, int32_t num_chunks) {
  Places places;
  std::mt19937 random(6);
  for (int32_t chunk = num_chunks - 1; std::ssize(places) < shape.rows; --chunk) {
    const int32_t begin = static_cast<int32_t>(random() % 6);
    const int32_t end = shape.chunk_tokens - static_cast<int32_t>(random() % 2) * 3;
    for (int32_t token = begin; token < end && std::ssize(places) < shape.rows; ++token) {
      if (random() % 16 != 0) places.push_back({chunk, token});
    }
  }
  if (shape.rows > 20) std::fill_n(places.begin() + 10, 5, kWriteNowhere);
  return places;
}

class RopeAppendConformance : public testing::TestWithParam<Param> {
 protected:
  // Chunks enough for either kind of places.
  static int32_t NumChunks(const RopeShape& shape) {
    return static_cast<int32_t>(shape.rows / (shape.chunk_tokens - 10)) + 4;
  }

  // `poison`: some rows have a value, others a key, that is no finite number, or none in f16.
  void ExpectAsReference(const Places& places, bool poison = false);
};

TEST_P(RopeAppendConformance, RotatesEveryRowAndWritesOnlyWhereItShould) {
  const RopeShape& shape = std::get<RopeShape>(GetParam());
  ExpectAsReference(ScatteredPlaces(shape, NumChunks(shape)));
}

TEST_P(RopeAppendConformance, WritesStretchesOfTokens) {
  const RopeShape& shape = std::get<RopeShape>(GetParam());
  ExpectAsReference(PlacesInStretches(shape, NumChunks(shape)));
}

TEST_P(RopeAppendConformance, WhatIsNoFiniteNumberIsZerosBehindAKeyThatIsNaN) {
  const RopeShape& shape = std::get<RopeShape>(GetParam());
  ExpectAsReference(PlacesInStretches(shape, NumChunks(shape)), /*poison=*/true);
}

void RopeAppendConformance::ExpectAsReference(const Places& places, bool poison) {
  const auto& [backend_case, shape, kv_dtype] = GetParam();
  const auto backend = backend_case.Make();
  ReferenceBackend reference;
  constexpr int kLayers = 2;
  const int num_chunks = NumChunks(shape);
  const KvPacking packing = backend->info().kv_packing(kv_dtype);
  KvPool got_pool(num_chunks, kLayers, shape.num_kv_heads, shape.head_dim, shape.chunk_tokens,
                  kv_dtype, packing);
  KvPool want_pool(num_chunks, kLayers, shape.num_kv_heads, shape.head_dim, shape.chunk_tokens,
                   kv_dtype, HostPackingOf(kv_dtype));

  constexpr int32_t kMaxPositions = 1000;
  const int half = shape.rope_dim / 2;
  std::vector<float> cos(kMaxPositions * half), sin(kMaxPositions * half);
  for (int32_t p = 0; p < kMaxPositions; ++p) {
    for (int i = 0; i < half; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / shape.rope_dim);
      cos[p * half + i] = static_cast<float>(std::cos(angle));
      sin[p * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  std::mt19937 random(7);  // positions are not the rows' ranks
  std::vector<int32_t> positions(shape.rows);
  for (int32_t& position : positions) position = static_cast<int32_t>(random() % kMaxPositions);

  const int64_t cols = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  const int64_t stride = cols + 5;
  std::vector<float> want = RandomFloats(shape.rows * stride, 7);
  const auto harmed_head = [&](int64_t row) { return static_cast<int>(row) % shape.num_kv_heads; };
  // By row % kKinds: what a value is, what a key is, nothing. The key is no f16 after any rotation:
  // the greater of the pair's sine and cosine is 0.7 at least.
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kHarm[][2] = {{kNaN, 0}, {0, -1e5f}, {7e4f, 0}, {0, 0}, {0, kNaN}};
  constexpr int64_t kKinds = std::ssize(kHarm);
  const auto is_harmed = [&](int64_t row) {
    const auto& [value, key] = kHarm[row % kKinds];
    const bool nan = std::isnan(value) || std::isnan(key);
    return poison && (nan || (value + key != 0 && kv_dtype == DType::kF16));
  };
  for (int64_t row = 0; row < shape.rows && poison; ++row) {
    const auto& [value, key] = kHarm[row % kKinds];
    float* const k = want.data() + row * stride +
                     (shape.num_heads + harmed_head(row)) * shape.head_dim + row % shape.head_dim;
    if (key != 0) k[0] = key;
    if (value != 0) k[int64_t{shape.num_kv_heads} * shape.head_dim] = value;
  }
  const DeviceFloats got(*backend, want), device_cos(*backend, cos), device_sin(*backend, sin);
  const DeviceArray<std::byte> device_pool(*backend, got_pool.bytes());
  RopeAppendArgs args;
  args.layer = 1;
  args.num_heads = shape.num_heads;
  args.qkv = {got.data(), DType::kF32, shape.rows, cols, stride};
  args.positions = positions;
  args.table = {device_cos.data(), device_sin.data(), kMaxPositions, shape.rope_dim};
  args.destinations = places;
  args.kv = got_pool.view();
  args.kv.base = device_pool.data();
  backend->RopeAppend(args);
  got_pool.SetBytes(device_pool.Read());
  args.qkv.data = want.data();
  args.table = {cos.data(), sin.data(), kMaxPositions, shape.rope_dim};
  args.kv = want_pool.view();
  reference.RopeAppend(args);

  for (int64_t row = 0; row < shape.rows; ++row) {
    if (!is_harmed(row) || places[row].chunk < 0) continue;
    for (int i = 0; i < shape.head_dim; ++i) {
      const KvElement at = {places[row].chunk, 1, harmed_head(row), places[row].offset, i};
      ASSERT_TRUE(std::isnan(LoadKey(want_pool.view(), at)));
      ASSERT_EQ(LoadValue(want_pool.view(), at), 0.0f);
    }
  }
  const auto mark = [](std::vector<float> values) {
    for (float& value : values) value = std::isnan(value) ? 1e9f : value;
    return values;
  };
  ExpectClose(mark(got.Read()), mark(want), 2e-6, 2e-6);
  // Everything in the pool: what was written, and that nothing else was.
  ExpectClose(got_pool.AllElements(), want_pool.AllElements(), Tolerance(kv_dtype),
              Tolerance(kv_dtype));
  EXPECT_EQ(got_pool.BytesOutsideElements(), want_pool.BytesOutsideElements());
}

std::string CaseName(const testing::TestParamInfo<Param>& info) {
  const auto& [backend, shape, kv_dtype] = info.param;
  return backend.name() + "_" + std::to_string(shape.rows) + "rows_d" +
         std::to_string(shape.head_dim) + "_" + std::string(Traits(kv_dtype).name);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, RopeAppendConformance,
    testing::Combine(testing::ValuesIn(BackendCases()), testing::ValuesIn(kRopeShapes),
                     testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3)),
    CaseName);

}  // namespace
}  // namespace refrain::kernels
