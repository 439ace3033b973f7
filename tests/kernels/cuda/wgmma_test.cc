// The emulated warpgroup products against plain loops, with operands where the attention kernels
// have them: each layout is written down here once more, element by element.

#include "kernels/cuda/wgmma.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/cuda/instructions.h"
#include "kernels/reference/half_float.h"
#include "tests/kernels/cuda/operand_layout.h"

namespace refrain::kernels::cuda {
namespace {

using testing::HasSubstr;

// Where an operand is: how the descriptor is filled and how far the next 16 of k are.
struct OperandAt {
  uint32_t begin = 0, leading = 0, stride = 0, step = 0;
  Swizzle swizzle = Swizzle::kNone;
};

struct ProductShape {
  OperandAt a, b;
  int steps = 1;
};

class Wgmma : public testing::Test {
 protected:
  static constexpr int kSharedBytes = 160 << 10;

  // Fills shared memory with whole numbers where the operands are and returns their product.
  template <class T>
  std::vector<float> Fill(int n, int depth, const ByteOf& a, const ByteOf& b) {
    image_.assign(kSharedBytes / 2, 0x7fff);  // NaN
    std::mt19937 random(depth + n);
    std::vector<float> values_a(64 * depth), values_b(n * depth);
    const auto fill = [&](std::vector<float>& values, int rows, const ByteOf& byte_of) {
      for (int row = 0; row < rows; ++row) {
        for (int k = 0; k < depth; ++k) {
          const auto value = static_cast<float>(static_cast<int>(random() % 9) - 4);
          values[row * depth + k] = value;
          uint16_t& at = image_[byte_of(row, k) / 2];
          EXPECT_EQ(at, 0x7fff);  // no two elements in one place
          at = std::is_same_v<T, F16> ? F32ToF16(value) : F32ToBf16(value);
        }
      }
    };
    fill(values_a, 64, a);
    fill(values_b, n, b);
    std::vector<float> product(64 * n);
    for (int row = 0; row < 64; ++row) {
      for (int column = 0; column < n; ++column) {
        for (int k = 0; k < depth; ++k) {
          product[row * n + column] += values_a[row * depth + k] * values_b[column * depth + k];
        }
      }
    }
    return product;
  }

  template <class... Params, class... Args>
  absl::Status Run(int threads, void (*kernel)(Params...), Args&&... args) {
    Launch(*stream_, {1, static_cast<unsigned>(threads), kSharedBytes, "product"}, kernel,
           std::forward<Args>(args)...);
    return runtime_->Synchronize(*stream_);
  }

  std::vector<uint16_t> image_;
  std::unique_ptr<Runtime> runtime_ = emulated::MakeEmulatedRuntime({});
  std::unique_ptr<Stream> stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
};

__device__ void LoadImage(const uint16_t* image, size_t elements) {
  for (size_t i = threadIdx.x; i < elements; i += blockDim.x)
    SharedMemory<uint16_t>()[i] = image[i];
  AsyncProxyFence();
  __syncthreads();
}

__device__ uint64_t DescriptorOf(const OperandAt& at) {
  return SharedDescriptor(SharedMemory<unsigned char>() + at.begin, at.leading, at.stride,
                          at.swizzle);
}

// d [64][kN] of this thread's warpgroup.
template <int kN>
__device__ void WriteProduct(const float (&d)[kN / 2], float* out) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  for (int i = 0; i < kN / 8; ++i) {
    for (int e = 0; e < 2; ++e) {
      out[row * kN + 8 * i + column + e] = d[4 * i + e];
      out[(row + 8) * kN + 8 * i + column + e] = d[4 * i + 2 + e];
    }
  }
}

template <class T, int kN, bool kTransposeA, bool kTransposeB>
__global__ void Multiply(const uint16_t* image, size_t elements, ProductShape shape, float* out) {
  LoadImage(image, elements);
  float d[kN / 2];
  for (float& x : d) x = 1e9f;
  HoldRegisters(d);
  WgmmaFence();
  for (int i = 0; i < shape.steps; ++i) {
    WgmmaM64K16<T, kN, kTransposeA, kTransposeB>(
        d, Advance(DescriptorOf(shape.a), i * shape.a.step),
        Advance(DescriptorOf(shape.b), i * shape.b.step), i > 0);
  }
  WgmmaCommit();
  WgmmaWait<0>();
  HoldRegisters(d);
  WriteProduct<kN>(d, out);
}

template <class T, int kN, bool kTransposeA, bool kTransposeB>
std::vector<float> Got(const std::vector<uint16_t>& image, const ProductShape& shape) {
  auto runtime = emulated::MakeEmulatedRuntime({});
  auto stream = *runtime->CreateStream(StreamPriority::kNormal);
  std::vector<float> out(64 * kN, 1e9f);
  Launch(*stream, {1, 128, 160 << 10, "product"}, Multiply<T, kN, kTransposeA, kTransposeB>,
         image.data(), image.size(), shape, out.data());
  const absl::Status status = runtime->Synchronize(*stream);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

constexpr uint32_t kB = 96 << 10;  // where b begins

// S^T = K Q^T and S = Q K^T: both K-major, a panel of 64 elements, 128-byte rows.
TEST_F(Wgmma, MultipliesKMajorRowsOf128Bytes) {
  ProductShape shape;
  shape.a = {0, 0, 1024, 32, Swizzle::k128Bytes};
  shape.b = {kB, 0, 1024, 32, Swizzle::k128Bytes};
  shape.steps = 4;
  const auto check = [&]<class T, int kN>(T, std::integral_constant<int, kN>) {
    const auto want = Fill<T>(kN, 64, RowsInPanels(0, 64, 64), RowsInPanels(kB, 64, kN));
    EXPECT_EQ((Got<T, kN, false, false>(image_, shape)), want) << kN;
  };
  check(F16(), std::integral_constant<int, 8>());
  check(F16(), std::integral_constant<int, 16>());
  check(BF16(), std::integral_constant<int, 32>());
  check(BF16(), std::integral_constant<int, 64>());
  check(F16(), std::integral_constant<int, 128>());
}

TEST_F(Wgmma, MultipliesKMajorRowsOf64Bytes) {
  ProductShape shape;
  shape.a = {0, 0, 512, 32, Swizzle::k64Bytes};
  shape.b = {kB, 0, 512, 32, Swizzle::k64Bytes};
  shape.steps = 2;
  const auto want = Fill<F16>(32, 32, RowsInPanels(0, 32, 64), RowsInPanels(kB, 32, 32));
  EXPECT_EQ((Got<F16, 32, false, false>(image_, shape)), want);
}

// Units of 8 x 8 elements without swizzle, k in the rows of a unit: leading = to the other 8 of k.
TEST_F(Wgmma, MultipliesKMajorUnits) {
  ProductShape shape;
  shape.a = {0, /*leading=*/128, /*stride=*/256, 0, Swizzle::kNone};
  shape.b = {kB, /*leading=*/2048, /*stride=*/128, 0, Swizzle::kNone};
  const auto units = [](int begin, int leading, int stride) {
    return [=](int row, int k) {
      return begin + row / 8 * stride + k / 8 * leading + row % 8 * 16 + k % 8 * 2;
    };
  };
  const auto want = Fill<BF16>(16, 16, units(0, 128, 256), units(kB, 2048, 128));
  EXPECT_EQ((Got<BF16, 16, false, false>(image_, shape)), want);
}

// O^T = V^T P^T: V as it lies, [64 keys][64 of head_dim], P^T in units of 8 keys by 8 queries.
template <int kN>
ByteOf WeightUnits() {
  return [](int row, int k) {
    return static_cast<int>(kB) + (row / 8 * 8 + k / 8) * 128 + k % 8 * 16 + row % 8 * 2;
  };
}

TEST_F(Wgmma, MultipliesTurnedPanelsWithTurnedUnits) {
  ProductShape shape;
  shape.b = {kB, /*leading=*/128, /*stride=*/1024, 256, Swizzle::kNone};
  shape.steps = 4;
  shape.a = {0, 0, 1024, 2048, Swizzle::k128Bytes};
  auto want = Fill<F16>(16, 64, Turned(RowsInPanels(0, 64, 64)), WeightUnits<16>());
  EXPECT_EQ((Got<F16, 16, true, true>(image_, shape)), want);
  // Panels of 32: the 64 rows of a are two of them.
  shape.a = {0, /*leading=*/4096, /*stride=*/512, 1024, Swizzle::k64Bytes};
  want = Fill<BF16>(8, 64, Turned(RowsInPanels(0, 32, 64)), WeightUnits<8>());
  EXPECT_EQ((Got<BF16, 8, true, true>(image_, shape)), want);
}

// O = P V: P in registers, V as it lies, its panels one after the other along N.
template <class T, int kN>
__global__ void MultiplyFromRegisters(const uint16_t* image, size_t elements, const uint16_t* a,
                                      ProductShape shape, float* out) {
  LoadImage(image, elements);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  uint32_t fragments[4][4];
  for (int i = 0; i < shape.steps; ++i) {
    for (int part = 0; part < 4; ++part) {
      const uint16_t* const at = a + (row + 8 * (part % 2)) * 64 + 16 * i + 8 * (part / 2) + column;
      fragments[i][part] = at[0] | static_cast<uint32_t>(at[1]) << 16;
    }
  }
  float d[kN / 2] = {};
  HoldRegisters(d);
  HoldRegisters(fragments);
  WgmmaFence();
  for (int i = 0; i < shape.steps; ++i) {
    WgmmaM64K16<T, kN, true>(d, fragments[i], Advance(DescriptorOf(shape.b), i * shape.b.step),
                             true);
  }
  WgmmaCommit();
  WgmmaWait<0>();
  HoldRegisters(d);
  HoldRegisters(fragments);
  WriteProduct<kN>(d, out);
}

TEST_F(Wgmma, MultipliesRegistersWithTurnedPanels) {
  const ByteOf rows = [](int row, int k) { return (row * 64 + k) * 2; };  // a in plain rows
  const auto check = [&]<class T, int kN>(T, std::integral_constant<int, kN>, int span) {
    ProductShape shape;
    shape.steps = 4;
    shape.b.begin = kB;
    shape.b.leading = 64 * span * 2;
    shape.b.stride = 8 * span * 2;
    shape.b.step = 16 * span * 2;
    shape.b.swizzle = span == 64 ? Swizzle::k128Bytes : Swizzle::k64Bytes;
    const auto want = Fill<T>(kN, 64, rows, Turned(RowsInPanels(kB, span, 64)));
    std::vector<float> out(64 * kN);
    const absl::Status status = Run(128, MultiplyFromRegisters<T, kN>, image_.data(), image_.size(),
                                    image_.data(), shape, out.data());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(out, want) << kN;
  };
  check(F16(), std::integral_constant<int, 64>(), 64);
  check(BF16(), std::integral_constant<int, 128>(), 64);
  check(BF16(), std::integral_constant<int, 96>(), 32);
}

// Two warpgroups, each with products of its own; the second has twice as many groups under way.
__global__ void MultiplyInGroups(const uint16_t* image, size_t elements, ProductShape shape,
                                 float* out) {
  LoadImage(image, elements);
  const int group = static_cast<int>(threadIdx.x) / 128;
  float first[4], second[4];
  HoldRegisters(first);
  HoldRegisters(second);
  WgmmaFence();
  WgmmaM64K16<F16, 8>(first, DescriptorOf(shape.a), DescriptorOf(shape.b), false);
  WgmmaCommit();
  WgmmaM64K16<F16, 8>(second, DescriptorOf(shape.a), DescriptorOf(shape.b), false);
  WgmmaCommit();
  WgmmaWait<1>();
  HoldRegisters(first);
  // The second product is not waited for: what it will give is not there.
  if (threadIdx.x == 5) out[0] = second[0];
  float* const own = out + 1 + group * 64 * 8;
  WriteProduct<8>(first, own);
  WgmmaWait<0>();
  HoldRegisters(second);
  if (group == 1) WriteProduct<8>(second, own);
}

TEST_F(Wgmma, ResultsAreThereOnceTheirGroupIsWaitedFor) {
  ProductShape shape;
  shape.a = {0, 0, 1024, 32, Swizzle::k128Bytes};
  shape.b = {kB, 0, 1024, 32, Swizzle::k128Bytes};
  const auto want = Fill<F16>(8, 16, RowsInPanels(0, 64, 64), RowsInPanels(kB, 64, 8));
  std::vector<float> out(1 + 2 * 64 * 8);
  const absl::Status status =
      Run(256, MultiplyInGroups, image_.data(), image_.size(), shape, out.data());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(std::vector<float>(out.begin() + 1, out.begin() + 1 + 512), want);
  EXPECT_EQ(std::vector<float>(out.begin() + 1 + 512, out.end()), want);
}

__global__ void OverwriteTooEarly(const uint16_t* image, size_t elements, ProductShape shape,
                                  float* out) {
  LoadImage(image, elements);
  float d[4];
  HoldRegisters(d);
  WgmmaFence();
  WgmmaM64K16<F16, 8>(d, DescriptorOf(shape.a), DescriptorOf(shape.b), false);
  WgmmaCommit();
  SharedMemory<uint16_t>()[threadIdx.x] = 0;
  WgmmaWait<0>();
  HoldRegisters(d);
  WriteProduct<8>(d, out);
}

TEST_F(Wgmma, OperandsAreReadUntilTheWait) {
  ProductShape shape;
  shape.a = {0, 0, 1024, 32, Swizzle::k128Bytes};
  shape.b = {kB, 0, 1024, 32, Swizzle::k128Bytes};
  const auto want = Fill<F16>(8, 16, RowsInPanels(0, 64, 64), RowsInPanels(kB, 64, 8));
  std::vector<float> out(64 * 8);
  ASSERT_TRUE(Run(128, OverwriteTooEarly, image_.data(), image_.size(), shape, out.data()).ok());
  EXPECT_NE(out, want);
}

__global__ void Disagree(ProductShape shape) {
  float d[4];
  shape.a.begin += threadIdx.x == 77 ? 16 : 0;
  HoldRegisters(d);
  WgmmaFence();
  WgmmaM64K16<F16, 8>(d, DescriptorOf(shape.a), DescriptorOf(shape.b), false);
}

TEST_F(Wgmma, RefusesThreadsThatIssueDifferentProducts) {
  const absl::Status status = Run(128, Disagree, ProductShape());
  EXPECT_THAT(status.ToString(), HasSubstr("different products"));
}

// Which registers of two products, one after the other, are held where.
struct Holds {
  bool d_before = true, a_before = true, d_behind = true, a_behind = true;
};

__global__ void MultiplyTwice(Holds holds) {
  const uint64_t b = SharedDescriptor(SharedMemory<unsigned char>(), 128, 256, Swizzle::kNone);
  float d[4] = {};
  uint32_t a[4] = {};
  HoldRegisters(d);
  HoldRegisters(a);
  for (int i = 0; i < 2; ++i) {
    if (i > 0 && holds.d_before) HoldRegisters(d);
    if (i > 0 && holds.a_before) HoldRegisters(a);
    WgmmaFence();
    WgmmaM64K16<F16, 8>(d, a, b, true);
    WgmmaCommit();
    WgmmaWait<0>();
    if (holds.d_behind) HoldRegisters(d);
    if (holds.a_behind) HoldRegisters(a);
  }
}

TEST_F(Wgmma, RefusesRegistersThatTheCompilerMayMove) {
  const auto message = [](const Holds& holds) {
    auto runtime = emulated::MakeEmulatedRuntime({});
    auto stream = *runtime->CreateStream(StreamPriority::kNormal);
    Launch(*stream, {1, 128, kSharedBytes, "product"}, MultiplyTwice, holds);
    return runtime->Synchronize(*stream).ToString();
  };
  EXPECT_EQ(message({}), "OK");
  EXPECT_THAT(message({.d_before = false}), HasSubstr("registers that were not held"));
  EXPECT_THAT(message({.a_before = false}), HasSubstr("registers that were not held"));
  EXPECT_THAT(message({.d_behind = false}), HasSubstr("registers that were not held"));
  EXPECT_THAT(message({.a_behind = false}), HasSubstr("registers that were not held"));
}

TEST_F(Wgmma, RefusesOperandsOutsideOfSharedMemory) {
  ProductShape shape;
  shape.b.begin = kSharedBytes - 128;
  shape.b.leading = 128;
  std::vector<float> out(64 * 8);
  image_.resize(8);
  const absl::Status status =
      Run(128, Multiply<F16, 8, false, false>, image_.data(), image_.size(), shape, out.data());
  EXPECT_THAT(status.ToString(), HasSubstr("outside of shared memory"));
}

}  // namespace
}  // namespace refrain::kernels::cuda
