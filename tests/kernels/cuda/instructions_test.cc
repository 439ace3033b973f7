// The emulated instructions against plain loops.

#include "kernels/cuda/instructions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"

namespace refrain::kernels::cuda {
namespace {

using testing::HasSubstr;

class Instructions : public testing::Test {
 protected:
  template <class... Params, class... Args>
  absl::Status Run(const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
    Launch(*stream_, shape, kernel, std::forward<Args>(args)...);
    return runtime_->Synchronize(*stream_);
  }

  std::unique_ptr<Runtime> runtime_ = emulated::MakeEmulatedRuntime({});
  std::unique_ptr<Stream> stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
};

TEST_F(Instructions, HalfConversionsEqualTheReference) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float want = F16ToF32(static_cast<uint16_t>(bits));
    const float got = HalfToFloat(static_cast<uint16_t>(bits));
    ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << bits;
    if (std::isnan(want)) continue;
    ASSERT_EQ(FloatToHalf(want), bits);
    // Around and at the border to the next value.
    for (const float factor : {1 + 0x1p-11f, 1 + 0x1p-12f, 1 + 0x1.8p-11f}) {
      ASSERT_EQ(FloatToHalf(want * factor), F32ToF16(want * factor)) << bits;
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToHalf(value), F32ToF16(value)) << value;
    ASSERT_EQ(FloatToBf16(value), F32ToBf16(value)) << value;
  }
}

template <class T>
__global__ void Multiply(const uint16_t* a, const uint16_t* b, float* d) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  const auto pair = [](uint16_t lo, uint16_t hi) { return lo | static_cast<uint32_t>(hi) << 16; };
  const auto a_pair = [&](int row, int k) { return pair(a[row * 16 + k], a[row * 16 + k + 1]); };
  const auto b_pair = [&](int k) { return pair(b[k * 8 + g], b[(k + 1) * 8 + g]); };
  const uint32_t fa[4] = {a_pair(g, 2 * t), a_pair(g + 8, 2 * t), a_pair(g, 2 * t + 8),
                          a_pair(g + 8, 2 * t + 8)};
  const uint32_t fb[2] = {b_pair(2 * t), b_pair(2 * t + 8)};
  float fd[4];
  for (int i = 0; i < 4; ++i) fd[i] = d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  MmaM16N8K16<T>(fd, fa, fb);
  for (int i = 0; i < 4; ++i) d[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = fd[i];
}

TEST_F(Instructions, MmaMultipliesMatrices) {
  for (const bool half : {true, false}) {
    std::mt19937 random(2);
    std::vector<uint16_t> a(16 * 16), b(16 * 8);
    std::vector<float> d(16 * 8), want(16 * 8);
    const auto whole = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
    const auto round = [&](float x) { return half ? F32ToF16(x) : F32ToBf16(x); };
    const auto value = [&](uint16_t x) { return half ? F16ToF32(x) : Bf16ToF32(x); };
    for (uint16_t& x : a) x = round(whole());
    for (uint16_t& x : b) x = round(whole());
    for (float& x : d) x = whole();
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        want[i * 8 + j] = d[i * 8 + j];
        for (int k = 0; k < 16; ++k) want[i * 8 + j] += value(a[i * 16 + k]) * value(b[k * 8 + j]);
      }
    }
    const auto kernel = half ? Multiply<F16> : Multiply<BF16>;
    ASSERT_TRUE(Run({1, 32, 0, "Multiply"}, kernel, a.data(), b.data(), d.data()).ok());
    EXPECT_EQ(d, want);
  }
}

// Four 8 x 8 matrices, rows 48 bytes apart; out [lane][4 + 4 + 2 + 2].
__global__ void LoadMatrices(uint32_t* out) {
  auto* const tile = SharedMemory<uint16_t>();
  for (int i = static_cast<int>(threadIdx.x); i < 32 * 24; i += 32)
    tile[i] = static_cast<uint16_t>(i);
  __syncthreads();
  const uint16_t* const row = tile + threadIdx.x * 24;
  uint32_t r4[4], t4[4], r2[2], t2[2];
  LoadMatrixX4(r4, row);
  LoadMatrixX4Transposed(t4, row);
  // The addresses of the other lanes do not count.
  const auto* const low = threadIdx.x < 16 ? row : tile + 1;
  LoadMatrixX2(r2, low);
  LoadMatrixX2Transposed(t2, low);
  uint32_t* const own = out + threadIdx.x * 12;
  for (int i = 0; i < 4; ++i) own[i] = r4[i], own[4 + i] = t4[i];
  for (int i = 0; i < 2; ++i) own[8 + i] = r2[i], own[10 + i] = t2[i];
}

TEST_F(Instructions, LdmatrixGivesFragments) {
  std::vector<uint32_t> out(32 * 12);
  ASSERT_TRUE(Run({1, 32, 32 * 48, "LoadMatrices"}, LoadMatrices, out.data()).ok());
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const auto element = [&](int row, int col) -> uint32_t { return (8 * i + row) * 24 + col; };
      const uint32_t straight = element(g, 2 * t) | element(g, 2 * t + 1) << 16;
      const uint32_t transposed = element(2 * t, g) | element(2 * t + 1, g) << 16;
      EXPECT_EQ(out[lane * 12 + i], straight);
      EXPECT_EQ(out[lane * 12 + 4 + i], transposed);
      if (i >= 2) continue;
      EXPECT_EQ(out[lane * 12 + 8 + i], straight);
      EXPECT_EQ(out[lane * 12 + 10 + i], transposed);
    }
  }
}

// Two groups, the second not waited for; element 2 is not valid.
__global__ void CopyInGroups(const uint32_t* in, uint32_t* out) {
  auto* const landed = SharedMemory<uint32_t>();
  CopyAsync16(landed, in, true);
  CopyAsync16(landed + 8, in + 8, false);
  CopyAsyncCommit();
  CopyAsync16(landed + 4, in + 4, true);
  CopyAsyncCommit();
  for (int i = 0; i < 12; ++i) out[i] = landed[i];
  CopyAsyncWait<1>();
  for (int i = 0; i < 12; ++i) out[12 + i] = landed[i];
  CopyAsyncWait<0>();
  for (int i = 0; i < 12; ++i) out[24 + i] = landed[i];
}

TEST_F(Instructions, CopiesLandWhenTheirGroupIsWaitedFor) {
  alignas(16) uint32_t in[12];
  std::iota(in, in + 12, 1);
  std::vector<uint32_t> out(36);
  ASSERT_TRUE(Run({1, 1, 48, "CopyInGroups"}, CopyInGroups, in, out.data()).ok());
  for (uint32_t i = 0; i < 12; ++i) {
    EXPECT_EQ(out[i], ~0u);
    EXPECT_EQ(out[12 + i], i < 4 ? i + 1 : i < 8 ? ~0u : 0);
    EXPECT_EQ(out[24 + i], i < 8 ? i + 1 : 0);
  }
}

// A producer warp fills a ring of two stages, a consumer warp sums and gives stages back.
struct Ring {
  alignas(16) float stages[2][64];
  uint64_t full[2], empty[2];
};

__global__ void RingOfStages(const float* in, float* out, int rounds) {
  Ring& ring = *SharedMemory<Ring>();
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; ++s) {
      BarrierInit(&ring.full[s], 1);
      BarrierInit(&ring.empty[s], 32);
    }
    BarrierInitFence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < rounds; ++i) {
      BarrierWait(&ring.empty[i % 2], 1 - i / 2 % 2);
      BarrierExpectBytes(&ring.full[i % 2], 256);
      BulkCopyToShared(ring.stages[i % 2], in + 64 * i, 128, &ring.full[i % 2]);
      BulkCopyToShared(ring.stages[i % 2] + 32, in + 64 * i + 32, 128, &ring.full[i % 2]);
    }
  } else if (threadIdx.x >= 32) {
    const unsigned lane = threadIdx.x - 32;
    for (int i = 0; i < rounds; ++i) {
      BarrierWait(&ring.full[i % 2], i / 2 % 2);
      out[lane] += ring.stages[i % 2][lane] + ring.stages[i % 2][lane + 32];
      BarrierArrive(&ring.empty[i % 2]);
    }
  }
}

TEST_F(Instructions, BulkCopiesCompleteOnBarriersPhaseAfterPhase) {
  constexpr int kRounds = 7;
  alignas(16) float in[64 * kRounds];
  std::iota(std::begin(in), std::end(in), 1.0f);
  std::vector<float> out(32), want(32);
  for (int i = 0; i < kRounds; ++i) {
    for (int lane = 0; lane < 32; ++lane) want[lane] += in[64 * i + lane] + in[64 * i + lane + 32];
  }
  ASSERT_TRUE(
      Run({1, 64, sizeof(Ring), "RingOfStages"}, RingOfStages, in, out.data(), kRounds).ok());
  EXPECT_EQ(out, want);
}

__global__ void ForgetTheBytes(const float* in) {
  Ring& ring = *SharedMemory<Ring>();
  BarrierInit(&ring.full[0], 1);
  BarrierExpectBytes(&ring.full[0], 512);
  BulkCopyToShared(ring.stages[0], in, 256, &ring.full[0]);
  BarrierWait(&ring.full[0], 0);
}

TEST_F(Instructions, BytesThatNeverLandAreAnError) {
  alignas(16) float in[64] = {};
  EXPECT_THAT(Run({1, 1, sizeof(Ring), "ForgetTheBytes"}, ForgetTheBytes, in).ToString(),
              HasSubstr("thread (0, 0, 0) in a barrier in shared memory"));
}

__global__ void Misalign(const float* in) { CopyAsync16(SharedMemory<float>() + 1, in, true); }
__global__ void BeyondTheEnd(const float* in) {
  Ring& ring = *SharedMemory<Ring>();
  BarrierInit(&ring.full[0], 1);
  BulkCopyToShared(&ring.full[0], in, 256, &ring.full[0]);
}

TEST_F(Instructions, CopiesOutOfPlaceAreErrors) {
  alignas(16) float in[64] = {};
  EXPECT_THAT(Run({1, 1, 64, "Misalign"}, Misalign, in).ToString(), HasSubstr("misaligned"));
  stream_ = nullptr;
  runtime_ = emulated::MakeEmulatedRuntime({});
  stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
  EXPECT_THAT(Run({1, 1, sizeof(Ring), "BeyondTheEnd"}, BeyondTheEnd, in).ToString(),
              HasSubstr("outside the block's shared memory"));
}

// Three warpgroups of 168 registers a thread, as they are launched: two want more, the third gives.
template <int kGiven, int kWanted>
__global__ void ShareRegisters(int* granted) {
  if (threadIdx.x < 256) {
    RegistersIncrease<kWanted>();
    granted[threadIdx.x] = 1;
  } else {
    RegistersDecrease<kGiven>();
  }
}

TEST_F(Instructions, RegistersMoveBetweenWarpgroups) {
  std::vector<int> granted(256);
  for (const auto kernel :
       {ShareRegisters<56, 224>, ShareRegisters<40, 232>, ShareRegisters<24, 240>}) {
    granted.assign(256, 0);
    ASSERT_TRUE(Run({{2}, 384, 0, "ShareRegisters"}, kernel, granted.data()).ok());
    EXPECT_EQ(granted, std::vector<int>(256, 1));
  }
}

// 64 + 2 * 224 would fit into the multiprocessor, but not into 3 * 168.
TEST_F(Instructions, MoreRegistersThanTheLaunchGaveAreAnError) {
  std::vector<int> granted(256);
  const absl::Status status =
      Run({1, 384, 0, "ShareRegisters"}, ShareRegisters<64, 224>, granted.data());
  EXPECT_THAT(status.ToString(), HasSubstr("in setmaxnreg.inc"));
  EXPECT_THAT(status.ToString(), HasSubstr("warpgroup 1 has 168 registers a thread and wants 224, "
                                           "48 a thread are free"));
}

__global__ void GiveMoreThanThereIs() { RegistersDecrease<176>(); }
__global__ void GiveAlone() {
  if (threadIdx.x < 32) RegistersDecrease<40>();
}

TEST_F(Instructions, RegistersOfPartOfAWarpgroupOrTheWrongWayAreErrors) {
  EXPECT_THAT(Run({1, 384, 0, "GiveMoreThanThereIs"}, GiveMoreThanThereIs).ToString(),
              HasSubstr("setmaxnreg.dec to 176 registers, the warpgroup has 168"));
  stream_ = nullptr;
  runtime_ = emulated::MakeEmulatedRuntime({});
  stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
  EXPECT_THAT(Run({1, 128, 0, "GiveAlone"}, GiveAlone).ToString(),
              HasSubstr("thread (0, 0, 0) in setmaxnreg.dec"));
}

}  // namespace
}  // namespace refrain::kernels::cuda
