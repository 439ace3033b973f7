// The instructions that the kernels rest on (not griddepcontrol and prefetching, which the emulated
// device has nothing for), on the emulated device or, where the test is built for one, on the GPU
// of this machine: numbers are whole, so results are exact. What a GPU says here tells a wrong
// layout or descriptor apart from a wrong kernel.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "tests/kernels/cuda/instruction_kernels.h"
#include "tests/kernels/cuda/operand_layout.h"

namespace refrain::kernels::cuda {
namespace {

class DeviceInstructions : public testing::Test {
 protected:
  void SetUp() override {
    auto runtime = OpenDevice(0);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
    ASSERT_TRUE(runtime_->MakeCurrent().ok());
  }
  void TearDown() override {
    for (std::byte* data : allocated_) runtime_->FreeDevice(data);
  }

  bool IsHopper() const { return runtime_->properties().capability() == 90; }

  template <class T>
  T* Upload(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    allocated_.push_back(*runtime_->AllocateDevice(bytes));
    const auto* const from = reinterpret_cast<const std::byte*>(values.data());
    EXPECT_TRUE(runtime_->Copy(allocated_.back(), from, bytes, *stream_).ok());
    return reinterpret_cast<T*>(allocated_.back());
  }
  // What is at `from` once everything before is done.
  template <class T>
  std::vector<T> Download(const T* from, size_t count) {
    std::vector<T> values(count);
    const absl::Status status =
        runtime_->Copy(reinterpret_cast<std::byte*>(values.data()),
                       reinterpret_cast<const std::byte*>(from), count * sizeof(T), *stream_);
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::byte*> allocated_;
};

TEST_F(DeviceInstructions, ConversionsRoundToNearestEven) {
  std::vector<float> in = {0.0f,           -0.0f,       1.0f,         65504.0f,   65519.0f,
                           65520.0f,       0x1p-24f,    0x1p-25f,     0x1.8p-25f, 1 + 0x1p-11f,
                           1 + 0x1.8p-10f, 1 + 0x1p-8f, 1 + 0x1.8p-7f};
  // Of E4M3: halves, subnormals, the greatest and what is beyond it.
  for (const float x : {1.0625f, 1.1875f, 0x1p-10f, 0x1.8p-9f, 0x1.fp-7f, 448.0f, 464.0f, 1e30f}) {
    in.push_back(x);
    in.push_back(-x);
  }
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 20.0f);
  for (int i = 0; i < 5000; ++i) in.push_back(normal(random));
  const size_t count = in.size();
  ConversionLaunch launch;
  launch.count = static_cast<int>(count);
  launch.in = Upload(in);
  launch.f16 = Upload(std::vector<uint16_t>(count));
  launch.bf16 = Upload(std::vector<uint16_t>(count));
  launch.f16_pairs = Upload(std::vector<uint32_t>(count));
  launch.bf16_pairs = Upload(std::vector<uint32_t>(count));
  launch.exp_two = Upload(std::vector<float>(count));
  launch.from_f16 = Upload(std::vector<float>(count));
  launch.from_bf16 = Upload(std::vector<float>(count));
  launch.e4m3 = Upload(std::vector<uint8_t>(count));
  launch.from_e4m3 = Upload(std::vector<float>(count));
  LaunchConversions(*stream_, launch);
  const auto e4m3 = Download(launch.e4m3, count);
  const auto from_e4m3 = Download(launch.from_e4m3, count);
  const auto f16 = Download(launch.f16, count), bf16 = Download(launch.bf16, count);
  const auto f16_pairs = Download(launch.f16_pairs, count);
  const auto bf16_pairs = Download(launch.bf16_pairs, count);
  const auto exp_two = Download(launch.exp_two, count);
  const auto from_f16 = Download(launch.from_f16, count);
  const auto from_bf16 = Download(launch.from_bf16, count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t half = F32ToF16(in[i]), brain = F32ToBf16(in[i]);
    ASSERT_EQ(f16[i], half) << in[i];
    ASSERT_EQ(bf16[i], brain) << in[i];
    ASSERT_EQ(f16_pairs[i], half | (half ^ 0x8000) << 16) << in[i];
    ASSERT_EQ(bf16_pairs[i], brain | (brain ^ 0x8000) << 16) << in[i];
    ASSERT_EQ(from_f16[i], F16ToF32(f16[i])) << in[i];
    ASSERT_EQ(from_bf16[i], Bf16ToF32(bf16[i])) << in[i];
    ASSERT_EQ(e4m3[i], F32ToE4m3(in[i])) << in[i];
    ASSERT_EQ(from_e4m3[i], E4m3ToF32(e4m3[i])) << in[i];
    // Beyond f32 it is infinite or zero; below its normal numbers it may be zero.
    const double want = std::exp2(double{in[i]});
    if (in[i] > 126 || in[i] < -125) continue;
    ASSERT_NEAR(exp_two[i] / want, 1, 0x1p-21) << in[i];
  }
}

TEST_F(DeviceInstructions, TwoToMinusInfinityIsZero) {
  const std::vector<float> in = {-std::numeric_limits<float>::infinity(), -1000.0f};
  ConversionLaunch launch;
  launch.count = 2;
  launch.in = Upload(in);
  launch.f16 = launch.bf16 = Upload(std::vector<uint16_t>(2));
  launch.f16_pairs = launch.bf16_pairs = Upload(std::vector<uint32_t>(2));
  launch.from_f16 = launch.from_bf16 = Upload(std::vector<float>(2));
  launch.e4m3 = Upload(std::vector<uint8_t>(2));
  launch.from_e4m3 = Upload(std::vector<float>(2));
  launch.exp_two = Upload(std::vector<float>(2, 1.0f));
  LaunchConversions(*stream_, launch);
  EXPECT_EQ(Download(launch.exp_two, 2), std::vector<float>(2, 0.0f));
}

float Whole(std::mt19937& random) { return static_cast<float>(static_cast<int>(random() % 9) - 4); }
uint16_t Element(bool bf16, float x) { return bf16 ? F32ToBf16(x) : F32ToF16(x); }

TEST_F(DeviceInstructions, MmaMultipliesWhatLdmatrixLoads) {
  for (const bool bf16 : {false, true}) {
    std::mt19937 random(2);
    std::vector<float> a(256), b(128), d(128);
    for (auto* values : {&a, &b, &d}) {
      for (float& x : *values) x = Whole(random);
    }
    std::vector<float> want = d;
    std::vector<uint16_t> bits_a, bits_b;
    for (const float x : a) bits_a.push_back(Element(bf16, x));
    for (const float x : b) bits_b.push_back(Element(bf16, x));
    for (int i = 0; i < 128; ++i) {
      for (int k = 0; k < 16; ++k) want[i] += a[i / 8 * 16 + k] * b[k * 8 + i % 8];
    }
    float* const on_device = Upload(d);
    LaunchMma(*stream_, bf16, Upload(bits_a), Upload(bits_b), on_device);
    EXPECT_EQ(Download(on_device, 128), want) << (bf16 ? "bf16" : "f16");
  }
}

TEST_F(DeviceInstructions, LdmatrixGivesRowsAndColumns) {
  uint32_t* const out = Upload(std::vector<uint32_t>(32 * 8));
  LaunchLoadMatrices(*stream_, out);
  const std::vector<uint32_t> got = Download(out, 32 * 8);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t g = lane / 4, t = lane % 4;
    for (uint32_t i = 0; i < 4; ++i) {
      const auto at = [&](uint32_t row, uint32_t col) { return 64 * i + 8 * row + col; };
      EXPECT_EQ(got[8 * lane + i], at(g, 2 * t) | at(g, 2 * t + 1) << 16);
      EXPECT_EQ(got[8 * lane + 4 + i], at(2 * t, g) | at(2 * t + 1, g) << 16);
    }
  }
}

TEST_F(DeviceInstructions, CopiesLandAndInvalidOnesAreZeros) {
  std::vector<uint32_t> in(256), want(256);
  std::iota(in.begin(), in.end(), 1);
  for (uint32_t i = 0; i < 256; ++i) want[i] = i / 4 % 2 == 0 ? in[i] : 0;
  uint32_t* const out = Upload(std::vector<uint32_t>(256, 7));
  LaunchCopyAsync(*stream_, Upload(in), out);
  EXPECT_EQ(Download(out, 256), want);
}

TEST_F(DeviceInstructions, BulkCopiesOfManyLanesCompleteOnBarriers) {
  if (!IsHopper()) GTEST_SKIP() << "of compute capability 9.0";
  constexpr int kRounds = 9;
  std::vector<float> in(64 * kRounds), want(32);
  std::iota(in.begin(), in.end(), 1.0f);
  for (size_t i = 0; i < in.size(); ++i) want[i % 32] += in[i];
  float* const out = Upload(std::vector<float>(32));
  LaunchBulkCopies(*stream_, Upload(in), kRounds, out);
  EXPECT_EQ(Download(out, 32), want);
}

TEST_F(DeviceInstructions, RegistersMoveBetweenWarpgroups) {
  if (!IsHopper()) GTEST_SKIP() << "of compute capability 9.0";
  int32_t* const granted = Upload(std::vector<int32_t>(256));
  LaunchShareRegisters(*stream_, granted);
  EXPECT_EQ(Download(granted, 256), std::vector<int32_t>(256, 1));
}

TEST_F(DeviceInstructions, NamedBarriersOrderWarpgroups) {
  int32_t* const out = Upload(std::vector<int32_t>(256));
  LaunchNamedBarriers(*stream_, out);
  const std::vector<int32_t> got = Download(out, 256);
  for (int thread = 0; thread < 128; ++thread) {
    EXPECT_EQ(got[thread], (thread + 40) % 128);
    EXPECT_EQ(got[128 + thread], 128 + (thread + 40) % 128 + (thread + 90) % 128);
  }
}

TEST_F(DeviceInstructions, TheLastBlockSeesWhatAllHaveWritten) {
  constexpr int kBlocks = 300;
  double want = 0;
  for (int block = 0; block < kBlocks; ++block) {
    for (int thread = 0; thread < 64; ++thread) want += block + thread;
  }
  float* const partials = Upload(std::vector<float>(kBlocks * 64, NAN));
  int32_t* const counter = Upload(std::vector<int32_t>(1));
  float* const out = Upload(std::vector<float>(1));
  for (int round = 0; round < 3; ++round) {
    LaunchLastBlockSums(*stream_, kBlocks, partials, counter, out);
    EXPECT_EQ(Download(out, 1)[0], static_cast<float>(want));
    EXPECT_EQ(Download(counter, 1)[0], 0);
  }
}

// --- wgmma ---

constexpr uint32_t kInB = 8 << 10;  // where b begins
constexpr uint32_t kNone = 0, k128Bytes = 1, k64Bytes = 2;

// K-major rows in panels, as K and the queries lie.
OperandInShared InRows(uint32_t begin, int span, int rows) {
  OperandInShared at;
  at.begin = begin;
  at.stride = static_cast<uint32_t>(8 * span * 2);
  at.swizzle = span == 64 ? k128Bytes : k64Bytes;
  for (int step = 0; step < 4; ++step) {
    const int k = 16 * step;
    at.steps[step] = static_cast<uint32_t>(k / span * rows * span * 2 + k % span * 2);
  }
  return at;
}

// Panels whose rows are k, as V lies: [64 keys][span] each.
OperandInShared InTurnedRows(uint32_t begin, int span) {
  OperandInShared at;
  at.begin = begin;
  at.leading = static_cast<uint32_t>(64 * span * 2);
  at.stride = static_cast<uint32_t>(8 * span * 2);
  at.swizzle = span == 64 ? k128Bytes : k64Bytes;
  for (uint32_t step = 0; step < 4; ++step) at.steps[step] = step * 2 * at.stride;
  return at;
}

struct ProductCase {
  const char* name;
  int n, span;
  bool bf16, turned, registers;  // turned: of b, and of a where it is not in registers
};

void PrintTo(const ProductCase& test_case, std::ostream* out) { *out << test_case.name; }

constexpr ProductCase kProducts[] = {
    {"scores_of_8_queries", 8, 64, false, false, false},
    {"scores_of_16_queries", 16, 64, true, false, false},
    {"scores_of_32_queries", 32, 64, false, false, false},
    {"scores_of_8_queries_half_panels", 8, 32, true, false, false},
    {"scores_of_32_queries_half_panels", 32, 32, true, false, false},
    {"scores_of_64_keys", 64, 64, true, false, false},
    {"values_of_8_queries", 8, 64, true, true, false},
    {"values_of_16_queries", 16, 64, false, true, false},
    {"values_of_32_queries", 32, 64, true, true, false},
    {"values_of_16_queries_half_panels", 16, 32, false, true, false},
    {"scores_from_registers", 64, 64, false, false, true},
    {"scores_from_registers_half_panels", 64, 32, true, false, true},
    {"values_from_registers_64", 64, 64, true, true, true},
    {"values_from_registers_96", 96, 32, false, true, true},
    {"values_from_registers_128", 128, 64, true, true, true},
};

class DeviceProducts : public DeviceInstructions,
                       public testing::WithParamInterface<ProductCase> {};

TEST_P(DeviceProducts, AreExactOnWholeNumbers) {
  if (!IsHopper()) GTEST_SKIP() << "of compute capability 9.0";
  const ProductCase& test_case = GetParam();
  const int n = test_case.n, span = test_case.span;
  ProductLaunch launch;
  launch.n = n;
  launch.bf16 = test_case.bf16;
  launch.a_in_registers = test_case.registers;
  launch.turned_a = test_case.turned && !test_case.registers;
  launch.turned_b = test_case.turned;
  ByteOf byte_of_a, byte_of_b;
  if (test_case.registers) {
    byte_of_a = [](int row, int k) { return (row * 64 + k) * 2; };
  } else if (test_case.turned) {
    byte_of_a = Turned(RowsInPanels(0, span, 64));
    launch.a = InTurnedRows(0, span);
  } else {
    byte_of_a = RowsInPanels(0, span, 64);
    launch.a = InRows(0, span, 64);
  }
  if (test_case.turned && !test_case.registers) {
    // Weights, in units of 8 k by 8 columns.
    byte_of_b = [](int column, int k) {
      return static_cast<int>(kInB) + (column / 8 * 8 + k / 8) * 128 + k % 8 * 16 + column % 8 * 2;
    };
    launch.b = {kInB, /*leading=*/128, /*stride=*/1024, kNone, {0, 256, 512, 768}};
  } else if (test_case.turned) {
    byte_of_b = Turned(RowsInPanels(kInB, span, 64));
    launch.b = InTurnedRows(kInB, span);
  } else {
    byte_of_b = RowsInPanels(kInB, span, n);
    launch.b = InRows(kInB, span, n);
  }

  std::vector<uint16_t> image(12 << 10, 0x7fff);  // NaN
  std::mt19937 random(3);
  const auto fill = [&](int rows, const ByteOf& byte_of) {
    std::vector<float> values(static_cast<size_t>(rows) * 64);
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < 64; ++k) {
        values[row * 64 + k] = Whole(random);
        image.at(byte_of(row, k) / 2) = Element(test_case.bf16, values[row * 64 + k]);
      }
    }
    return values;
  };
  const std::vector<float> a = fill(64, byte_of_a), b = fill(n, byte_of_b);
  std::vector<float> want(static_cast<size_t>(64) * n);
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < n; ++column) {
      for (int k = 0; k < 64; ++k) want[row * n + column] += a[row * 64 + k] * b[column * 64 + k];
    }
  }
  launch.image = Upload(image);
  launch.image_elements = static_cast<int>(image.size());
  launch.out = Upload(std::vector<float>(want.size()));
  ASSERT_TRUE(LaunchProduct(*stream_, launch));
  const std::vector<float> got = Download(launch.out, want.size());
  size_t off = 0, first = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i] != want[i] && off++ == 0) first = i;
  }
  EXPECT_EQ(off, 0u) << "of " << want.size() << "; first at row " << first / n << ", column "
                     << first % n << ": " << got[first] << ", should be " << want[first];
}

INSTANTIATE_TEST_SUITE_P(Forms, DeviceProducts, testing::ValuesIn(kProducts),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace refrain::kernels::cuda
