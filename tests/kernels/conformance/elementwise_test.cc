#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"

namespace refrain::kernels {
namespace {

// f32 sums and an exponential of about one unit in the last place.
constexpr double kRelative = 4e-6;
constexpr double kAbsolute = 1e-6;

struct Shape {
  int64_t rows, cols;
};

// Ragged by rule: around vector lengths and the rows done on the calling thread, and primes.
const Shape kShapes[] = {{1, 1},  {1, 15}, {1, 16},   {1, 17},  {4, 63},  {5, 64},
                         {5, 65}, {7, 97}, {17, 576}, {64, 31}, {3, 1536}};

class ElementwiseConformance : public testing::TestWithParam<std::tuple<BackendCase, Shape>> {
 protected:
  std::unique_ptr<Backend> backend_ = std::get<0>(GetParam()).Make();
  ReferenceBackend reference_;
  int64_t rows_ = std::get<1>(GetParam()).rows;
  int64_t cols_ = std::get<1>(GetParam()).cols;
  // Rows are longer than what is used, with what must not be read or written behind them.
  int64_t stride_ = cols_ + 3;
  std::vector<float> x_ = RandomFloats(rows_ * stride_, 1, 3.0f);
  std::vector<float> y_ = RandomFloats(rows_ * stride_, 2, 3.0f);

  TensorView View(std::vector<float>& storage) const {
    return {storage.data(), DType::kF32, rows_, cols_, stride_};
  }
  TensorView View(const DeviceFloats& storage) const {
    return {storage.data(), DType::kF32, rows_, cols_, stride_};
  }
};

TEST_P(ElementwiseConformance, RmsNormMatches) {
  const std::vector<float> weight = RandomFloats(cols_, 3);
  std::vector<float> want = y_;
  const DeviceFloats x(*backend_, x_), norm(*backend_, weight), got(*backend_, y_);
  RmsNormArgs args;
  args.eps = 1e-5;
  args.x = View(x);
  args.weight = norm.data();
  args.out = View(got);
  backend_->RmsNorm(args);
  args.x = View(x_);
  args.weight = weight.data();
  args.out = View(want);
  reference_.RmsNorm(args);
  ExpectClose(got.Read(), want, kAbsolute, kRelative);
}

// The logits of chosen rows: any order, repeats allowed.
TEST_P(ElementwiseConformance, RmsNormTakesChosenRows) {
  const std::vector<float> weight = RandomFloats(cols_, 3);
  const std::vector<int32_t> chosen = {static_cast<int32_t>(rows_ - 1), 0,
                                       static_cast<int32_t>(rows_ / 2), 0};
  std::vector<float> want(chosen.size() * cols_);
  const DeviceFloats x(*backend_, x_), norm(*backend_, weight), got(*backend_, want);
  RmsNormArgs args;
  args.eps = 1e-6;
  args.x = View(x);
  args.weight = norm.data();
  args.row_indexes = chosen;
  args.out = F32View(got.data(), std::ssize(chosen), cols_);
  backend_->RmsNorm(args);
  args.x = View(x_);
  args.weight = weight.data();
  args.out = F32View(want.data(), std::ssize(chosen), cols_);
  reference_.RmsNorm(args);
  ExpectClose(got.Read(), want, kAbsolute, kRelative);
}

// Heads of a row, in place, as between a product and RoPE; what stands beside them stays.
TEST_P(ElementwiseConformance, RmsNormOfGroupsMatches) {
  for (const int groups : {2, 5}) {
    const int64_t heads = groups * cols_, stride = heads + 6;
    const std::vector<float> weight = RandomFloats(cols_, 3), x = RandomFloats(rows_ * stride, 4);
    std::vector<float> want = x;
    const DeviceFloats norm(*backend_, weight), got(*backend_, x);
    const auto args = [&](float* data, const float* weights) {
      const TensorView view = {data + 4, DType::kF32, rows_, heads, stride};
      return RmsNormArgs{.eps = 1e-6, .x = view, .weight = weights, .out = view, .groups = groups};
    };
    backend_->RmsNorm(args(got.data(), norm.data()));
    reference_.RmsNorm(args(want.data(), weight.data()));
    ExpectClose(got.Read(), want, kAbsolute, kRelative);
    // Each of them as if it were a row of its own.
    std::vector<float> alone = x;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int group = 0; group < groups; ++group) {
        const TensorView view = F32View(&alone[row * stride + 4 + group * cols_], 1, cols_);
        reference_.RmsNorm({.eps = 1e-6, .x = view, .weight = weight.data(), .out = view});
      }
    }
    EXPECT_EQ(want, alone);
  }
}

TEST_P(ElementwiseConformance, SwiGluMatches) {
  std::vector<float> want = y_;
  x_[0] = 100.0f;  // beyond where e^x and e^-x leave f32
  x_[stride_ * (rows_ - 1) + cols_ - 1] = -100.0f;
  const DeviceFloats x(*backend_, x_), y(*backend_, y_), got(*backend_, y_);
  backend_->SwiGlu({View(x), View(y), View(got)});
  reference_.SwiGlu({View(x_), View(y_), View(want)});
  ExpectClose(got.Read(), want, kAbsolute, kRelative);
}

TEST_P(ElementwiseConformance, AddIsExact) {
  std::vector<float> want = x_;
  const DeviceFloats got(*backend_, x_), y(*backend_, y_);
  backend_->Add({View(got), View(y)});
  reference_.Add({View(want), View(y_)});
  EXPECT_EQ(got.Read(), want);
}

TEST_P(ElementwiseConformance, OneRowIsAddedToAll) {
  const std::vector<float> bias = RandomFloats(cols_, 5);
  const DeviceFloats got(*backend_, x_), y(*backend_, bias);
  backend_->Add({View(got), {y.data(), DType::kF32, rows_, cols_, /*stride=*/0}});
  std::vector<float> want = x_;
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t i = 0; i < cols_; ++i) want[row * stride_ + i] += bias[i];
  }
  EXPECT_EQ(got.Read(), want);
}

// Each row alone has the bits it has among the others.
TEST_P(ElementwiseConformance, RowsDoNotDependOnOneAnother) {
  const std::vector<float> weight = RandomFloats(cols_, 3);
  const DeviceFloats x(*backend_, x_), norm(*backend_, weight);
  const DeviceFloats together(*backend_, y_), alone(*backend_, y_);
  RmsNormArgs args;
  args.eps = 1e-5;
  args.x = View(x);
  args.weight = norm.data();
  args.out = View(together);
  backend_->RmsNorm(args);
  for (int64_t row = 0; row < rows_; ++row) {
    args.x = F32View(View(x).F32Row(row), 1, cols_);
    args.out = F32View(View(alone).F32Row(row), 1, cols_);
    backend_->RmsNorm(args);
  }
  EXPECT_EQ(together.Read(), alone.Read());
}

class SiluRange : public testing::TestWithParam<BackendCase> {};

// From where e^x underflows to where it overflows: a few units in the last place everywhere.
TEST_P(SiluRange, IsAccurateEverywhere) {
  std::vector<float> gate;
  for (float x = -87.0f; x < 90.0f; x += 0.0137f) gate.push_back(x);
  std::vector<float> up(gate.size(), 1.0f), want(gate.size());
  const auto view = [&](auto& v) { return F32View(v.data(), 1, std::ssize(gate)); };
  const std::unique_ptr<Backend> backend = GetParam().Make();
  const DeviceFloats device_gate(*backend, gate), device_up(*backend, up), got(*backend, want);
  backend->SwiGlu({view(device_gate), view(device_up), view(got)});
  ReferenceBackend().SwiGlu({view(gate), view(up), view(want)});
  ExpectClose(got.Read(), want, 0, 6e-7);
}

INSTANTIATE_TEST_SUITE_P(Backends, SiluRange, testing::ValuesIn(BackendCases()),
                         testing::PrintToStringParamName());

std::string CaseName(const testing::TestParamInfo<std::tuple<BackendCase, Shape>>& info) {
  const auto& [backend, shape] = info.param;
  return backend.name() + "_" + std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
}

INSTANTIATE_TEST_SUITE_P(Backends, ElementwiseConformance,
                         testing::Combine(testing::ValuesIn(BackendCases()),
                                          testing::ValuesIn(kShapes)),
                         CaseName);

}  // namespace
}  // namespace refrain::kernels
