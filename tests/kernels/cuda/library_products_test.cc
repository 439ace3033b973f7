// Products by a library where it is faster, on the emulated device: which are its, that they are
// right, and what a library that is not costs.

#include "kernels/cuda/library_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_linear_weight.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/support/quantize.h"

namespace refrain::kernels::cuda {
namespace {

using emulated::EmulatedLibrary;
using emulated::EmulatedOptions;
using emulated::MakeEmulatedRuntime;
using ::testing::HasSubstr;

constexpr double kSlow = 0.05;  // far beyond what our kernel takes here, in seconds
// Times are the host's: whatever the library takes is fast enough.
constexpr float kAlways = 1e9f;
const LibraryProducts::Options kOptions = {
    .rows = {8, 16}, .worth_it = kAlways, .rounds = 1, .workspace_bytes = 256};

struct Case {
  DType dtype = DType::kF16;
  int64_t n = 70, k = 100, rows = 12;
  int64_t out_stride = 72;
  float scale = 1.0f;  // of x
  bool accumulate = false, reproducible = false;
  ComputeDType compute = ComputeDType::kAuto;
  bool second_copy = false;
};

class LibraryProductsTest : public ::testing::Test {
 protected:
  void Make(EmulatedOptions options = {}, LibraryProducts::Options library = kOptions) {
    options.library.present = true;
    products_ = options.library.products;
    refuses_ = options.library.refuses_now;
    skips_first_ = options.library.skips_first;
    auto backend = CudaBackend::Create(MakeEmulatedRuntime(options), {.library = library});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  absl::StatusOr<std::unique_ptr<LinearWeight>> Pack(const Case& c) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(c.k));
    std::string stored;
    weight_.resize(static_cast<size_t>(c.n * c.k));
    for (int64_t n = 0; n < c.n; ++n) {
      for (float& value : row) value = normal(random);
      const std::string bytes = refrain::testing::QuantizeRow(c.dtype, row);
      DequantizeRow(c.dtype, reinterpret_cast<const std::byte*>(bytes.data()), c.k,
                    weight_.data() + n * c.k);
      stored += bytes;
    }
    const WeightSlice slice{
        c.dtype, c.n, c.k, reinterpret_cast<const std::byte*>(stored.data()), {}};
    return backend_->PackLinear({&slice, 1}, {.compute = c.compute, .second_copy = c.second_copy});
  }

  // Multiplies, and compares with double arithmetic over x as it is rounded. Returns how many
  // products were put on the stream by the library.
  int64_t Check(const Case& c) {
    auto weight = Pack(c);
    EXPECT_TRUE(weight.ok()) << weight.status();
    if (!weight.ok()) return -1;
    return Multiply(c, **weight);
  }

  int64_t Multiply(const Case& c, const LinearWeight& weight) {
    std::mt19937 random(8);
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(c.rows * c.k));
    for (float& value : x) value = c.scale * normal(random);
    std::vector<float> before(static_cast<size_t>(c.rows * c.out_stride));
    for (float& value : before) value = normal(random);
    const DeviceFloats device_x(*backend_, x), out(*backend_, before);
    const int64_t products = *products_;
    TensorView to = F32View(out.data(), c.rows, c.n);
    to.stride = c.out_stride;
    backend_->Linear({.weight = &weight,
                      .x = F32View(device_x.data(), c.rows, c.k),
                      .out = to,
                      .accumulate = c.accumulate,
                      .reproducible = c.reproducible});
    const std::vector<float> got = out.Read();
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t n = 0; n < c.out_stride; ++n) {
        const int64_t at = row * c.out_stride + n;
        if (n >= c.n) {
          EXPECT_EQ(got[at], before[at]) << "behind row " << row;
          continue;
        }
        double want = c.accumulate ? before[at] : 0;
        for (int64_t k = 0; k < c.k; ++k) want += Rounded(c, x[row * c.k + k]) * Weight(c, n, k);
        EXPECT_NEAR(got[at], want, 1e-4 * c.scale * static_cast<double>(c.k)) << row << ", " << n;
      }
    }
    return *products_ - products;
  }

  // As the library has it: quantised weights are rounded to f16.
  double Weight(const Case& c, int64_t n, int64_t k) const {
    const float stored = weight_[static_cast<size_t>(n * c.k + k)];
    return Traits(c.dtype).quantized ? F16ToF32(F32ToF16(stored)) : stored;
  }
  static double Rounded(const Case& c, float x) {
    if (c.compute == ComputeDType::kF32) return x;
    if (c.dtype == DType::kBF16) return Bf16ToF32(F32ToBf16(x));
    return F16ToF32(F32ToF16(std::min(std::max(x, -65504.0f), 65504.0f)));
  }

  static constexpr size_t kAlignment = 4096;  // of CudaDevice's blocks

  std::shared_ptr<int64_t> products_;
  std::shared_ptr<bool> refuses_, skips_first_;
  std::unique_ptr<CudaBackend> backend_;
  std::vector<float> weight_;  // [n, k], as stored
};

TEST_F(LibraryProductsTest, ALibraryThatIsFastEnoughComputes) {
  Make();
  EXPECT_EQ(backend_->info().products,
            "own kernels, and emulated library 1.0 where it is faster (0 of 0 sizes tried)");
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    EXPECT_EQ(Check({.dtype = dtype}), 1);
    EXPECT_EQ(Check({.dtype = dtype, .rows = 16, .accumulate = true}), 1);
    EXPECT_EQ(Check({.dtype = dtype, .rows = 5}), 1) << "down to the next number of rows below";
    EXPECT_EQ(Check({.dtype = dtype, .n = 33, .k = 7, .out_stride = 36}), 1);
    EXPECT_EQ(Check({.dtype = dtype, .rows = 40}), 1) << "the last number of rows is for more";
  }
  EXPECT_EQ(backend_->info().warning, "");
}

TEST_F(LibraryProductsTest, QuantizedWeightsAreWidenedForManyRows) {
  LibraryProducts::Options options = kOptions;
  options.least_rows_quantized = 16;
  Make({}, options);
  for (const DTypeTraits& traits : kDTypes) {
    if (!traits.quantized) continue;
    SCOPED_TRACE(std::string(traits.name));
    EXPECT_EQ(Check({.dtype = traits.dtype, .k = 512, .rows = 16}), 1);
    EXPECT_EQ(Check({.dtype = traits.dtype, .k = 512, .rows = 9, .accumulate = true}), 1);
    EXPECT_EQ(Check({.dtype = traits.dtype, .k = 512, .rows = 8}), 0) << "was not tried";
  }
  options.most_widened_bytes = 70 * 512 * 2 - 1;
  Make({}, options);
  EXPECT_EQ(Check({.dtype = DType::kQ4_0, .k = 512, .rows = 16}), 0);
}

// A second copy takes the place of what would be widened for each product; few rows stay ours.
TEST_F(LibraryProductsTest, ASecondCopyIsGivenToTheLibraryAsItIs) {
  Make();  // 128 rows and more of quantised weights are not tried
  constexpr int64_t kMany = CudaLinearWeight::kSecondCopyRows;
  for (const DTypeTraits& traits : kDTypes) {
    if (!traits.quantized) continue;
    SCOPED_TRACE(std::string(traits.name));
    Case c = {.dtype = traits.dtype, .n = 20, .k = 512, .rows = kMany, .out_stride = 20};
    EXPECT_EQ(Check(c), 0) << "without a copy";
    c.second_copy = true;
    EXPECT_EQ(Check(c), 1);
    c.accumulate = true;
    EXPECT_EQ(Check(c), 1);
    c.reproducible = true;
    EXPECT_EQ(Check(c), 0);
    c.reproducible = false;
    c.rows = 12;
    EXPECT_EQ(Check(c), 0);
  }
}

TEST_F(LibraryProductsTest, EveryShapeIsTriedOnce) {
  Make();
  ASSERT_TRUE(Pack({}).ok());
  const int64_t tried = *products_;
  EXPECT_GT(tried, 0);
  ASSERT_TRUE(Pack({}).ok());
  EXPECT_EQ(*products_, tried);
  ASSERT_TRUE(Pack({.dtype = DType::kBF16}).ok());
  EXPECT_EQ(*products_, 2 * tried);
  const auto choices = backend_->library()->choices();
  ASSERT_EQ(choices.size(), 4u);
  EXPECT_EQ(choices[3].dtype, DType::kBF16);
  EXPECT_EQ(choices[3].rows, 16);
  for (const auto& choice : choices) {
    EXPECT_EQ(choice.n, 70);
    EXPECT_EQ(choice.k, 100);
    EXPECT_GT(choice.own_ms, 0);
    EXPECT_GT(choice.library_ms, 0);
    EXPECT_TRUE(choice.algorithm.has_value());
    EXPECT_EQ(choice.algorithm->bytes[0], std::byte{0}) << "the second algorithm is slow";
  }
}

TEST_F(LibraryProductsTest, ASlowerLibraryDoesNotCompute) {
  LibraryProducts::Options options = kOptions;
  options.worth_it = 0.97f;
  Make({.library = {.slowness = kSlow}}, options);
  EXPECT_EQ(Check({}), 0);
  EXPECT_EQ(backend_->info().warning, "");
  ASSERT_EQ(backend_->library()->choices().size(), 2u);
  EXPECT_GT(backend_->library()->choices()[0].library_ms, 1e3 * kSlow);
}

TEST_F(LibraryProductsTest, ActivationsBeyondF16AreItsLargest) {
  Make();
  EXPECT_EQ(Check({.scale = 1e5f}), 1);
}

TEST_F(LibraryProductsTest, ReproducibleAndExactProductsAreOurs) {
  Make();
  EXPECT_EQ(Check({.reproducible = true}), 0);
  EXPECT_EQ(Check({.dtype = DType::kBF16, .compute = ComputeDType::kF32}), 0);
}

// Of which our kernel rounds nothing.
TEST_F(LibraryProductsTest, FewRowsAreOurs) {
  Make();
  auto weight = Pack({});
  ASSERT_TRUE(weight.ok());
  const DeviceFloats x(*backend_, std::vector<float>(4 * 100, 1.0f));
  const DeviceFloats out(*backend_, std::vector<float>(4 * 72));
  const int64_t products = *products_;
  TensorView to = F32View(out.data(), 4, 70);
  to.stride = 72;
  backend_->Linear({.weight = weight->get(), .x = F32View(x.data(), 4, 100), .out = to});
  EXPECT_TRUE(backend_->Synchronize().ok());
  EXPECT_EQ(*products_, products);
}

TEST_F(LibraryProductsTest, RowsThatTheLibraryCannotWriteAreOurs) {
  Make();
  EXPECT_EQ(Check({.out_stride = 71}), 0);
}

TEST_F(LibraryProductsTest, AnAlgorithmThatDoesNotComputeSoManyRowsIsNotUsed) {
  Make({.library = {.computes_rows = 20}});
  EXPECT_EQ(Check({.rows = 20}), 1);
  EXPECT_EQ(Check({.rows = 21}), 0);
}

TEST_F(LibraryProductsTest, ALibraryThatKnowsNoAlgorithmOrRefusesLeavesProductsToUs) {
  Make({.library = {.algorithms = 0}});
  EXPECT_EQ(Check({}), 0);
  Make({.library = {.refuses_now = std::make_shared<bool>(true)}});
  EXPECT_EQ(Check({}), 0);
  EXPECT_EQ(backend_->info().warning, "");
}

TEST_F(LibraryProductsTest, AWrongLibraryIsNotUsed) {
  using Fault = EmulatedLibrary::Fault;
  const std::pair<Fault, const char*> kFaults[] = {
      {Fault::kWrongSum, ", row 7 of 8 is off by "},
      {Fault::kNaN, ", row 7 of 8 is off by nan"},
      {Fault::kUnwritten, ", row 7 of 8 is off by nan"},
      {Fault::kWrongAccumulation, ", added to what is there, row 7 of 8 is off by "}};
  for (const auto& [fault, what] : kFaults) {
    SCOPED_TRACE(what);
    Make({.library = {.fault = fault}});
    EXPECT_EQ(Check({}), 0);
    EXPECT_EQ(backend_->info().warning.find(
                  std::string("products are not the library's on this device: emulated library 1.0 "
                              "computes wrong results: f16 weight of 70 x 100") +
                  what),
              0u)
        << backend_->info().warning;
    EXPECT_EQ(backend_->info().products, "own kernels");
    EXPECT_EQ(backend_->library(), nullptr);
  }
}

// A library that does not take so many rows of one type is asked again for another.
TEST_F(LibraryProductsTest, AnswersAreOfOneAlgorithmAlone) {
  LibraryProducts::Options options = kOptions;
  options.least_rows_quantized = 8;
  Make({.library = {.computes_second_rows = 8}}, options);
  const auto q8 = Pack({.dtype = DType::kQ8_0, .k = 512});
  const std::vector<float> q8_values = weight_;
  // Of this one the second algorithm is the only one: it is slow, and computes 8 rows at most.
  *skips_first_ = true;
  const auto q4 = Pack({.dtype = DType::kQ4_0, .k = 512});
  ASSERT_TRUE(q8.ok() && q4.ok());
  EXPECT_EQ(Multiply({.dtype = DType::kQ4_0, .k = 512, .rows = 12}, **q4), 0);
  weight_ = q8_values;
  EXPECT_EQ(Multiply({.dtype = DType::kQ8_0, .k = 512, .rows = 12}, **q8), 1);
}

// Each of its products would wait for the refusal of one that the library never computes.
TEST_F(LibraryProductsTest, WhatIsRefusedIsAskedAgainAfterAWhile) {
  LibraryProducts::Options options = kOptions;
  options.refused_products = 3;
  std::vector<std::string> warnings;
  options.warn = [&](std::string_view warning) { warnings.emplace_back(warning); };
  Make({}, options);
  const auto weight = Pack({});
  ASSERT_TRUE(weight.ok());
  for (int times = 0; times < 2; ++times) {
    *refuses_ = true;
    EXPECT_EQ(Multiply({}, **weight), 0);
    *refuses_ = false;
    EXPECT_EQ(Multiply({.rows = 11}, **weight), 1) << "another shape";
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Multiply({}, **weight), 0) << i;
    EXPECT_EQ(Multiply({}, **weight), 1);
  }
  ASSERT_EQ(warnings.size(), 1u) << "of the first one alone";
  EXPECT_EQ(warnings[0],
            "a product by emulated library 1.0 was refused (Multiply: the library refuses) and is "
            "computed by own kernels; not logged again");
}

// Whoever has the card's memory may give it back at any time.
TEST_F(LibraryProductsTest, AfterWantOfMemoryTheNextProductIsAskedForAgain) {
  std::vector<std::string> warnings;
  LibraryProducts::Options options = kOptions;
  options.warn = [&](std::string_view warning) { warnings.emplace_back(warning); };
  Make({.library = {.refusal = absl::StatusCode::kResourceExhausted}}, options);
  const auto weight = Pack({});
  ASSERT_TRUE(weight.ok());
  for (int times = 0; times < 2; ++times) {
    *refuses_ = true;
    EXPECT_EQ(Multiply({}, **weight), 0);
    *refuses_ = false;
    EXPECT_EQ(Multiply({}, **weight), 1);
  }
  EXPECT_EQ(warnings.size(), 1u);
}

// A card that is full behind the start: what ours need for x is what the library's do.
TEST_F(LibraryProductsTest, NeedNoMemoryThatOurProductsDoNot) {
  Make({.memory_bytes = size_t{8} << 20});
  const Case c = {.rows = 4096};
  const auto weight = Pack(c);
  ASSERT_TRUE(weight.ok());
  Case reproducible = c;
  reproducible.reproducible = true;
  EXPECT_EQ(Multiply(reproducible, **weight), 0);
  const size_t room =
      (static_cast<size_t>(c.rows) * (c.k + c.out_stride) * sizeof(float)) + (64 << 10);
  std::vector<DeviceBuffer> rest;
  while (backend_->device().AvailableBytes() > room + (128 << 10)) {
    auto part = backend_->device().Allocate(
        std::min(backend_->device().AvailableBytes() - room - (64 << 10), size_t{1} << 20), false);
    ASSERT_TRUE(part.ok()) << part.status();
    rest.push_back(*std::move(part));
  }
  EXPECT_EQ(Multiply(c, **weight), 1);
  EXPECT_TRUE(backend_->Synchronize().ok());
}

TEST_F(LibraryProductsTest, TrialsThatEndForWantOfMemorySayNothingOfMoreRows) {
  LibraryProducts::Options options = kOptions;
  options.rows = {8, 1 << 16};
  Make({.memory_bytes = size_t{64} << 20}, options);
  EXPECT_EQ(Check({}), 0);
  EXPECT_EQ(Check({.rows = 8}), 0) << "nothing was tried: there is no room for the most rows";
}

TEST_F(LibraryProductsTest, MemoryIsGivenBackWhereOurKernelsAreFaster) {
  LibraryProducts::Options slow = kOptions;
  slow.worth_it = 0.0f;
  slow.workspace_bytes = 1 << 20;
  Make({}, slow);
  const size_t before = backend_->device().AvailableBytes();
  const auto weight = Pack({});
  ASSERT_TRUE(weight.ok());
  // By chance the block may be aligned as it comes.
  const size_t taken = before - backend_->device().AvailableBytes();
  EXPECT_GE(taken, (*weight)->resident_bytes());
  // Ours keep x in 16 bits, of the most rows that were tried.
  const Case c;
  const size_t rounded = static_cast<size_t>(slow.rows.back() * RoundedStride(c.k)) * 3;
  EXPECT_LE(taken, (*weight)->resident_bytes() + 2 * kAlignment + rounded);
}

TEST_F(LibraryProductsTest, ARefusedLaunchLeavesProductsToUs) {
  Make({.failing_call = "Launch", .failing_call_index = 3});
  EXPECT_EQ(Check({}), 0);
  EXPECT_EQ(backend_->info().warning.find("products are not the library's on this device: "), 0u)
      << backend_->info().warning;
}

TEST_F(LibraryProductsTest, WithoutALibraryItSaysWhy) {
  EmulatedOptions options;
  auto backend = CudaBackend::Create(MakeEmulatedRuntime(options), {.library = kOptions});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->info().products, "own kernels (the emulated device has no library)");
  EXPECT_EQ((*backend)->info().warning, "");
}

TEST_F(LibraryProductsTest, WhereThereIsNoMemoryForTryingProductsAreOurs) {
  LibraryProducts::Options options = kOptions;
  options.workspace_bytes = size_t{1} << 30;
  Make({.memory_bytes = size_t{64} << 20}, options);
  EXPECT_EQ(Check({}), 0);
}

TEST_F(LibraryProductsTest, MoreRowsThanThereIsRoomForAreNotTried) {
  LibraryProducts::Options options = kOptions;
  options.most_out_bytes = 8 * 72 * sizeof(float);
  Make({}, options);
  EXPECT_EQ(Check({}), 1);
  ASSERT_EQ(backend_->library()->choices().size(), 1u);
  EXPECT_EQ(backend_->library()->choices()[0].rows, 8);
}

TEST_F(LibraryProductsTest, MoreRowsThanAStepHasAreNotTried) {
  for (const auto& [most, last] : {std::pair<int64_t, int64_t>(8, 8), {9, 16}, {100, 32}}) {
    LibraryProducts::Options options = kOptions;
    options.rows = {8, 16, 32};
    options.most_rows = most;
    Make({}, options);
    ASSERT_TRUE(Pack({}).ok());
    EXPECT_EQ(backend_->library()->choices().back().rows, last) << most;
  }
}

TEST_F(LibraryProductsTest, ADeviceThatFailsMeanwhileFailsTheLoad) {
  Make({.failing_call = "Kernel", .failing_call_index = 2});
  const auto weight = Pack({});
  ASSERT_FALSE(weight.ok());
  EXPECT_EQ(weight.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(weight.status().message(),
              HasSubstr("while products by emulated library 1.0 were tried: "));
}

}  // namespace
}  // namespace refrain::kernels::cuda
