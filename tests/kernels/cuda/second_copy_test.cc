// A second copy of quantised weights in device memory (PackOptions::second_copy) on the emulated
// device, by our own kernels; the library's part is in library_products_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_linear_weight.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/cpu/quantized_blocks.h"

namespace refrain::kernels::cuda {
namespace {

using emulated::MakeEmulatedRuntime;
using ::testing::HasSubstr;

constexpr int64_t kN = 40, kK = 256;
constexpr int64_t kMany = 260;  // above what sums over k are split for
constexpr size_t kCopyBytes = kN * kK * 2;

std::vector<float> Multiply(CudaBackend& backend, const LinearWeight& weight, int64_t rows,
                            bool reproducible) {
  const DeviceFloats x(backend, cpu::RandomFloats(rows * kK, 4));
  const DeviceFloats out(backend, std::vector<float>(static_cast<size_t>(rows * kN)));
  backend.Linear({.weight = &weight,
                  .x = F32View(x.data(), rows, kK),
                  .out = F32View(out.data(), rows, kN),
                  .reproducible = reproducible});
  return out.Read();
}

// Weights are rounded to f16 once and not in each product: the same numbers, in the same order.
TEST(CudaSecondCopyTest, GivesTheProductsOfTheBlocks) {
  const auto backend = *CudaBackend::Create(MakeEmulatedRuntime({}));
  for (const DType dtype : cpu::QuantizedTypes()) {
    SCOPED_TRACE(std::string(Traits(dtype).name));
    EXPECT_THAT(backend->info().second_copies, ::testing::Contains(dtype));
    const auto data = cpu::RandomRows(dtype, kN, kK, 1);
    const WeightSlice slice{dtype, kN, kK, data.data(), {}};
    const auto one = *backend->PackLinear({&slice, 1}, {});
    const auto two = *backend->PackLinear({&slice, 1}, {.second_copy = true});
    EXPECT_EQ(two->resident_bytes() - one->resident_bytes(), kCopyBytes);
    const std::vector<float> got = Multiply(*backend, *two, kMany, false);
    EXPECT_EQ(got, Multiply(*backend, *one, kMany, false));
    EXPECT_TRUE(std::ranges::any_of(got, [](float value) { return value != 0; }));
    EXPECT_EQ(Multiply(*backend, *two, 5, false), Multiply(*backend, *one, 5, false));
  }
  EXPECT_EQ(backend->Synchronize(), absl::OkStatus());
}

// The copy, and not the blocks, is what many rows are multiplied by: blocks overwritten behind the
// packing change few rows' products and reproducible ones alone.
TEST(CudaSecondCopyTest, ManyRowsReadTheCopy) {
  const auto backend = *CudaBackend::Create(MakeEmulatedRuntime({}));
  const auto data = cpu::RandomRows(DType::kQ8_0, kN, kK, 1);
  const WeightSlice slice{DType::kQ8_0, kN, kK, data.data(), {}};
  const auto weight = *backend->PackLinear({&slice, 1}, {.second_copy = true});
  constexpr int64_t kLeast = CudaLinearWeight::kSecondCopyRows;
  const auto products = [&](int64_t rows, bool reproducible) {
    return Multiply(*backend, *weight, rows, reproducible);
  };
  const std::vector<float> few = products(kLeast - 1, false), many = products(kLeast, false);
  const std::vector<float> alike = products(kLeast, true);
  const CudaLinearWeight::Part& part = static_cast<CudaLinearWeight&>(*weight).parts()[0];
  const std::vector<std::byte> zeros(part.buffer.bytes());
  ASSERT_TRUE(backend->device().CopyFromHost(part.buffer.data(), zeros.data(), zeros.size()).ok());
  EXPECT_EQ(products(kLeast, false), many);
  EXPECT_NE(products(kLeast - 1, false), few);
  EXPECT_NE(products(kLeast, true), alike);
}

TEST(CudaSecondCopyTest, OtherTypesAndExactProductsHaveNone) {
  const auto backend = *CudaBackend::Create(MakeEmulatedRuntime({}));
  const auto data = cpu::RandomRows(DType::kQ8_0, kN, kK, 1);
  const WeightSlice slice{DType::kQ8_0, kN, kK, data.data(), {}};
  for (const ComputeDType compute : {ComputeDType::kF32, ComputeDType::kBF16}) {
    const auto one = *backend->PackLinear({&slice, 1}, {.compute = compute});
    const auto two = *backend->PackLinear({&slice, 1}, {.compute = compute, .second_copy = true});
    EXPECT_EQ(one->resident_bytes(), two->resident_bytes());
  }
}

TEST(CudaSecondCopyTest, NoRoomForOneIsSaid) {
  const auto backend =
      *CudaBackend::Create(MakeEmulatedRuntime({.memory_bytes = size_t{48} << 10}));
  const auto data = cpu::RandomRows(DType::kQ8_0, 100, kK, 1);
  const WeightSlice slice{DType::kQ8_0, 100, kK, data.data(), {}};
  ASSERT_TRUE(backend->PackLinear({&slice, 1}, {}).ok());
  const absl::Status status = backend->PackLinear({&slice, 1}, {.second_copy = true}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("need 51200 bytes of device memory"));
}

// Every call fails once: a status comes out then or with the next synchronisation, or the products
// are right.
TEST(CudaSecondCopyTest, AnyCallMayFail) {
  const auto data = cpu::RandomRows(DType::kQ8_0, kN, kK, 1);
  const WeightSlice slice{DType::kQ8_0, kN, kK, data.data(), {}};
  const auto whole = *CudaBackend::Create(MakeEmulatedRuntime({}));
  const std::vector<float> want =
      Multiply(*whole, **whole->PackLinear({&slice, 1}, {.second_copy = true}), kMany, false);
  int failed = 0, right = 0;
  for (int64_t n = 0; n < 60; ++n) {
    auto made =
        CudaBackend::Create(MakeEmulatedRuntime({.failing_call = "", .failing_call_index = n}));
    if (!made.ok()) continue;
    CudaBackend& backend = **made;
    const auto weight = backend.PackLinear({&slice, 1}, {.second_copy = true});
    if (!weight.ok()) {
      ++failed;
      continue;
    }
    if (!backend.Synchronize().ok()) continue;
    auto in = backend.device().Allocate(kMany * kK * sizeof(float), false);
    auto out = backend.device().Allocate(kMany * kN * sizeof(float), false);
    if (!in.ok() || !out.ok()) continue;
    const std::vector<float> x = cpu::RandomFloats(kMany * kK, 4);
    if (!backend.device()
             .CopyFromHost(in->data(), reinterpret_cast<const std::byte*>(x.data()), in->bytes())
             .ok()) {
      continue;
    }
    backend.Linear({.weight = weight->get(),
                    .x = F32View(reinterpret_cast<float*>(in->data()), kMany, kK),
                    .out = F32View(reinterpret_cast<float*>(out->data()), kMany, kN)});
    std::vector<float> got(kMany * kN);
    const absl::Status status = backend.Synchronize();
    const absl::Status copied = backend.device().CopyToHost(
        reinterpret_cast<std::byte*>(got.data()), out->data(), out->bytes());
    if (!status.ok() || !copied.ok()) continue;
    EXPECT_EQ(got, want) << n;
    ++right;
  }
  EXPECT_GT(failed, 0);
  EXPECT_GT(right, 0);
}

}  // namespace
}  // namespace refrain::kernels::cuda
