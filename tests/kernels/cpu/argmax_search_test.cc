// LinearArgMax of the CPU back end against the greatest of what Linear computes.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isa.h"
#include "tests/kernels/cpu/quantized_blocks.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int32_t kUndecided = LinearArgMaxArgs::kUndecided;

struct Weight {
  DType dtype;
  int64_t n, k;
  std::vector<std::byte> data;

  Weight(DType type, int64_t rows, int64_t cols, uint32_t seed)
      : dtype(type), n(rows), k(cols), data(RandomRows(type, rows, cols, seed)) {}

  size_t row_bytes() const { return *RowBytes(dtype, k); }
  void CopyRow(int64_t from, int64_t to) {
    std::memcpy(data.data() + to * row_bytes(), data.data() + from * row_bytes(), row_bytes());
  }
  WeightSlice slice() const { return {dtype, n, k, data.data(), {}}; }
};

class Search {
 public:
  Search(Isa isa, int threads, const Weight& weight) : k_(weight.k), n_(weight.n) {
    auto backend = CpuBackend::Create({threads, std::string(Name(isa))});
    EXPECT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    const WeightSlice slice = weight.slice();
    weight_ = *backend_->PackLinear({&slice, 1}, {.argmax = true});
    rough_ = *backend_->PackLinear({&slice, 1}, {.compute = ComputeDType::kInt8});
  }

  using Excluded = LinearArgMaxArgs::Excluded;

  std::vector<int32_t> ArgMax(std::vector<float>& x, std::span<const Excluded> excluded = {}) {
    std::vector<int32_t> out(x.size() / k_, -7);
    backend_->LinearArgMax({weight_.get(), View(x), out, excluded});
    return out;
  }
  // [rows, n], with activations of 8 bits only if `rough`.
  std::vector<float> Products(std::vector<float>& x, bool rough = false) {
    std::vector<float> products(x.size() / k_ * n_);
    const TensorView out = F32View(products.data(), static_cast<int64_t>(x.size()) / k_, n_);
    backend_->Linear({rough ? rough_.get() : weight_.get(), View(x), out, false, true});
    return products;
  }
  std::vector<int32_t> ArgMaxOfAll(std::vector<float>& x, bool rough = false) {
    const std::vector<float> products = Products(x, rough);
    std::vector<int32_t> best;
    for (size_t row = 0; row < x.size() / k_; ++row) {
      const auto begin = products.begin() + row * n_;
      best.push_back(static_cast<int32_t>(std::max_element(begin, begin + n_) - begin));
    }
    return best;
  }

 private:
  TensorView View(std::vector<float>& x) const {
    return F32View(x.data(), static_cast<int64_t>(x.size()) / k_, k_);
  }

  int64_t k_, n_;
  std::unique_ptr<CpuBackend> backend_;
  std::unique_ptr<LinearWeight> weight_, rough_;
};

class ArgMaxSearchTest : public testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(ArgMaxSearchTest, FindsTheGreatestOfWhatLinearComputes) {
  constexpr int64_t kN = 1507, kK = 256;  // the last tile is part-full
  const Weight weight(dtype(), kN, kK, 1);
  int misled = 0, decided = 0, rows_seen = 0;
  for (const int threads : {1, 3}) {
    Search search(isa(), threads, weight);
    for (const int64_t rows : {1, 2, 7, 33, 100}) {
      std::vector<float> x = RandomFloats(rows * kK, 10 + rows);
      // Some of very different sizes, as activations are.
      for (size_t i = 0; i < x.size(); i += 97) x[i] *= 20;
      const std::vector<int32_t> got = search.ArgMax(x), want = search.ArgMaxOfAll(x);
      const std::vector<int32_t> rough = search.ArgMaxOfAll(x, /*rough=*/true);
      for (int64_t row = 0; row < rows; ++row) {
        ++rows_seen;
        misled += rough[row] != want[row];
        if (got[row] == kUndecided) continue;
        ++decided;
        ASSERT_EQ(got[row], want[row]) << "row " << row << " of " << rows;
      }
    }
  }
  EXPECT_GE(decided, rows_seen * 0.95);
  EXPECT_GT(misled, 0) << "8 bits alone would have passed";
}

TEST_P(ArgMaxSearchTest, TheLowestOfEqualProductsIsFound) {
  constexpr int64_t kN = 1000, kK = 256;
  Weight weight(dtype(), kN, kK, 2);
  std::vector<float> x = RandomFloats(5 * kK, 3);
  std::vector<int32_t> best;
  {
    Search search(isa(), 2, weight);
    best = search.ArgMaxOfAll(x);
  }
  // Each row's greatest once more at its beginning, its middle and its end.
  for (int i = 0; i < 5; ++i) {
    for (const int64_t to : {3 + 40 * i, 500 + 40 * i, 995 - i}) weight.CopyRow(best[i], to);
  }
  Search search(isa(), 2, weight);
  const std::vector<int32_t> got = search.ArgMax(x), want = search.ArgMaxOfAll(x);
  EXPECT_EQ(got, want);
  for (int i = 0; i < 5; ++i) EXPECT_LE(want[i], 3 + 40 * i);
}

// The greatest of every third row is excluded, then the next greatest, too.
TEST_P(ArgMaxSearchTest, WhatIsExcludedIsNotFound) {
  constexpr int64_t kN = 1507, kK = 256, kRows = 33;
  const Weight weight(dtype(), kN, kK, 12);
  Search search(isa(), 3, weight);
  std::vector<float> x = RandomFloats(kRows * kK, 13);
  const std::vector<float> products = search.Products(x);
  std::vector<Search::Excluded> excluded;
  std::vector<int32_t> want;
  for (int32_t row = 0; row < kRows; ++row) {
    std::vector<float> of_row(products.begin() + row * kN, products.begin() + (row + 1) * kN);
    for (int times = 0; times < row % 3; ++times) {
      const auto best = std::max_element(of_row.begin(), of_row.end()) - of_row.begin();
      excluded.push_back({row, static_cast<int32_t>(best)});
      of_row[best] = -std::numeric_limits<float>::infinity();
    }
    // Does not change what is found.
    excluded.push_back(
        {row, static_cast<int32_t>(
                  std::min_element(products.begin() + row * kN, products.begin() + (row + 1) * kN) -
                  (products.begin() + row * kN))});
    want.push_back(
        static_cast<int32_t>(std::max_element(of_row.begin(), of_row.end()) - of_row.begin()));
  }
  const std::vector<int32_t> got = search.ArgMax(x, excluded);
  int decided = 0;
  for (int32_t row = 0; row < kRows; ++row) {
    decided += got[row] != kUndecided;
    EXPECT_TRUE(got[row] == kUndecided || got[row] == want[row]) << row;
  }
  EXPECT_GE(decided, kRows - 1);
  // A row of which nothing is left; the others stay as they were.
  std::vector<Search::Excluded> all;
  for (int32_t index = 0; index < kN; ++index) all.push_back({1, index});
  const std::vector<int32_t> rest = search.ArgMax(x, all), usual = search.ArgMax(x);
  for (int32_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(rest[row], row == 1 ? kUndecided : usual[row]) << row;
  }
}

TEST_P(ArgMaxSearchTest, WhatCannotBeToldApartIsLeftUndecided) {
  constexpr int64_t kN = 640, kK = 256;
  Weight flat(dtype(), kN, kK, 4);
  for (int64_t row = 1; row < kN; ++row) flat.CopyRow(0, row);
  std::vector<float> x = RandomFloats(3 * kK, 5);
  std::fill(x.begin() + kK, x.begin() + 2 * kK, 0.0f);
  EXPECT_EQ(Search(isa(), 2, flat).ArgMax(x), std::vector<int32_t>(3, kUndecided));

  const Weight weight(dtype(), kN, kK, 6);
  Search search(isa(), 2, weight);
  const std::vector<int32_t> usual = search.ArgMax(x);
  EXPECT_NE(usual[0], kUndecided);
  EXPECT_EQ(usual[1], kUndecided) << "all products are 0";
  EXPECT_NE(usual[2], kUndecided);
  for (const float wild :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38f}) {
    x[kK / 2 + 21] = wild;  // in the second half of a block
    const std::vector<int32_t> got = search.ArgMax(x);
    if (!(wild < std::numeric_limits<float>::infinity())) {
      EXPECT_EQ(got[0], kUndecided) << wild;
    } else if (got[0] != kUndecided) {
      EXPECT_EQ(got[0], search.ArgMaxOfAll(x)[0]);
    }
    EXPECT_EQ(got[2], usual[2]) << "beside " << wild;
  }
}

TEST_P(ArgMaxSearchTest, WeightsThatAreNotFiniteAreNotSearched) {
  constexpr int64_t kN = 100, kK = 256;
  Weight weight(dtype(), kN, kK, 7);
  // The f16 scale of one block of the row that is packed last but one.
  const uint16_t infinity = 0x7c00;
  const size_t at = dtype() == DType::kQ6_K ? 208 : 0;
  std::memcpy(weight.data.data() + 98 * weight.row_bytes() + at, &infinity, sizeof(infinity));
  std::vector<float> x = RandomFloats(2 * kK, 8);
  EXPECT_EQ(Search(isa(), 1, weight).ArgMax(x), std::vector<int32_t>(2, kUndecided));
}

INSTANTIATE_TEST_SUITE_P(Levels, ArgMaxSearchTest,
                         testing::Combine(testing::ValuesIn(SupportedIsas()),
                                          testing::ValuesIn(QuantizedTypes())),
                         [](const auto& info) {
                           return std::string(Name(std::get<0>(info.param))) + "_" +
                                  std::string(Traits(std::get<1>(info.param)).name);
                         });

TEST(ArgMaxOfOtherWeightsTest, IsLeftUndecided) {
  const auto backend = *CpuBackend::Create({1, "portable"});
  std::vector<float> x = RandomFloats(2 * 256, 9);
  const TensorView view = F32View(x.data(), 2, 256);
  const Weight q4(DType::kQ4_0, 40, 256, 10), q8(DType::kQ8_0, 40, 256, 11);
  const std::vector<float> floats = RandomFloats(40 * 256, 12);
  const WeightSlice dense{
      DType::kF32, 40, 256, reinterpret_cast<const std::byte*>(floats.data()), {}};
  const auto expect_undecided = [&](std::span<const WeightSlice> slices, PackOptions options) {
    const auto weight = *backend->PackLinear(slices, options);
    std::vector<int32_t> out = {5, 5};
    backend->LinearArgMax({weight.get(), view, out});
    EXPECT_EQ(out, std::vector<int32_t>(2, kUndecided));
  };
  const std::vector<WeightSlice> both = {q4.slice(), q8.slice()};
  expect_undecided(both, {.argmax = true});
  expect_undecided({&dense, 1}, {.argmax = true});
  expect_undecided({both.data(), 1}, {});
  expect_undecided({both.data(), 1}, {.compute = ComputeDType::kInt8, .argmax = true});
  expect_undecided({both.data(), 1}, {.compute = ComputeDType::kF32, .argmax = true});
}

}  // namespace
}  // namespace refrain::kernels::cpu
