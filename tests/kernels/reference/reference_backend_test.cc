#include "kernels/reference/reference_backend.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "kernels/reference/kv_element.h"

namespace refrain::kernels {
namespace {

// Every one of the 65,536 halves, NaN excepted, survives the way to f32 and back.
TEST(HalfFloat, RoundTripsEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (!std::isnan(F16ToF32(half))) {
      ASSERT_EQ(F32ToF16(F16ToF32(half)), half);
    }
    if (!std::isnan(Bf16ToF32(half))) {
      ASSERT_EQ(F32ToBf16(Bf16ToF32(half)), half);
    }
  }
}

TEST(HalfFloat, RoundsTiesToEvenAndKeepsNan) {
  EXPECT_EQ(F32ToF16(1.0f + 0x1p-11f), 0x3c00);             // tie, down to even
  EXPECT_EQ(F32ToF16(1.0f + 0x1p-10f + 0x1p-11f), 0x3c02);  // tie, up to even
  EXPECT_EQ(F32ToF16(65519.0f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(0x1p-25f), 0);
  EXPECT_EQ(F32ToF16(0x1.8p-24f), 2);
  EXPECT_EQ(F32ToBf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(F32ToBf16(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::numeric_limits<float>::quiet_NaN()))));
}

// Where the packings of attention_args.h put K and V of a chunk of 16 tokens, head dim 8.
TEST(KvElement, FollowsThePackings) {
  std::vector<float> storage(2 * 16 * 8);
  KvPoolView kv;
  kv.base = reinterpret_cast<std::byte*>(storage.data());
  kv.chunk_tokens = 16;
  kv.num_kv_heads = 1;
  kv.head_dim = 8;
  kv.dtype = DType::kF32;
  kv.head_bytes = kv.v_offset_bytes = 16 * 8 * sizeof(float);
  StoreKey(kv, {0, 0, 0, 3, 5}, 1.5f);
  StoreValue(kv, {0, 0, 0, 3, 5}, 2.5f);
  EXPECT_EQ(storage[5 * 16 + 3], 1.5f);       // K [d][c]
  EXPECT_EQ(storage[128 + 3 * 8 + 5], 2.5f);  // V [c][d]

  kv.dtype = DType::kBF16;
  kv.packing = KvPacking::kPairs;
  kv.head_bytes = kv.v_offset_bytes = 16 * 8 * 2;
  StoreKey(kv, {0, 0, 0, 3, 5}, 1.5f);
  StoreValue(kv, {0, 0, 0, 3, 5}, 2.5f);
  const auto* bits = reinterpret_cast<const uint16_t*>(storage.data());
  EXPECT_EQ(bits[(5 / 2 * 16 + 3) * 2 + 1], F32ToBf16(1.5f));       // K [d/2][c][2]
  EXPECT_EQ(bits[128 + (3 / 2 * 8 + 5) * 2 + 1], F32ToBf16(2.5f));  // V [c/2][d][2]
}

// Two keys with scores 0 and ln 3: weights 1/4 and 3/4.
TEST(ReferenceBackend, AttendsByHand) {
  ReferenceBackend backend;
  std::vector<float> storage(2 * 16 * 8, std::numeric_limits<float>::quiet_NaN());
  KvPoolView kv;
  kv.base = reinterpret_cast<std::byte*>(storage.data());
  kv.chunk_tokens = 16;
  kv.num_kv_heads = 1;
  kv.head_dim = 8;
  kv.dtype = DType::kF32;
  kv.head_bytes = kv.v_offset_bytes = 16 * 8 * sizeof(float);
  kv.layer_bytes = kv.chunk_bytes = 2 * kv.head_bytes;
  for (int i = 0; i < 8; ++i) {
    for (int token = 0; token < 2; ++token) {
      StoreKey(kv, {0, 0, 0, token, i}, i == 0 && token == 1 ? std::log(3.0f) : 0.0f);
      StoreValue(kv, {0, 0, 0, token, i}, token == 1 ? 4.0f * i : 8.0f);
    }
  }
  std::vector<float> q(16, 1.0f), out(16);
  const AttentionRun run = {0, 1, 0, 1};
  const RunChunk chunk = {0, 0};
  const RunSlot slot = {0, 0, kOpenEnd};
  const SlotStep step = {2, 0, 0, 2};
  ChunkAttentionArgs args;
  args.num_heads = 1;
  args.scale = 1.0f;
  args.kv = kv;
  args.plan = {{&run, 1}, {&chunk, 1}, {&slot, 1}};
  args.steps = {&step, 1};
  args.q = F32View(q.data(), 2, 8);
  args.out = F32View(out.data(), 2, 8);
  backend.ChunkAttention(args);
  for (int i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(out[i], 8.0f);                 // the first row sees itself only
    EXPECT_FLOAT_EQ(out[8 + i], 2.0f + 3.0f * i);  // 8 / 4 + 4 i * 3 / 4
  }
}

TEST(ReferenceBackend, RefusesSlicesOfDifferentWidth) {
  ReferenceBackend backend;
  const std::vector<float> data(64);
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  const WeightSlice slices[] = {{DType::kF32, 2, 8, bytes, {}}, {DType::kF32, 2, 16, bytes, {}}};
  const auto packed = backend.PackLinear(slices, {});
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostDevice, AlignsAndZeroesAndRefusesTheImpossible) {
  HostDevice device;
  for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{3} << 20}) {
    auto buffer = device.Allocate(bytes, true);
    ASSERT_TRUE(buffer.ok());
    const size_t alignment = bytes >= (2u << 20) ? 2u << 20 : 4096;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % alignment, 0u);
    EXPECT_EQ(buffer->data()[bytes - 1], std::byte{0});
  }
  EXPECT_EQ(device.Allocate(size_t{1} << 60, false).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace refrain::kernels
