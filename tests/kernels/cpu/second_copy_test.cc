// A second copy of quantised weights (PackOptions::second_copy), on every level that this machine
// has: who has one, what is multiplied by it and what is not.

#include "kernels/cpu/second_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/dequantize.h"
#include "tests/kernels/cpu/quantized_blocks.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int64_t kN = 77, kK = 512;
constexpr int64_t kFew = 3, kMany = 40;  // fewer than on any level, and more

// |got - want| over |want|, both as vectors.
double RelativeError(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

class SecondCopyTest : public testing::TestWithParam<Isa> {
 protected:
  static bool Has(DType dtype) {
    const std::vector<DType> types = SecondCopiesOf(GetParam());
    return std::find(types.begin(), types.end(), dtype) != types.end();
  }

  // [kN, kK]
  std::unique_ptr<LinearWeight> Pack(DType dtype, const std::vector<std::byte>& data,
                                     PackOptions options) {
    const WeightSlice slice{dtype, kN, kK, data.data(), {}};
    auto packed = backend_->PackLinear({&slice, 1}, options);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  }

  struct Call {
    int64_t rows = kMany;
    bool accumulate = false, reproducible = false;
    std::vector<uint8_t> coarse = {};
  };
  std::vector<float> Multiply(const LinearWeight& weight, const Call& call) {
    std::vector<float> x = RandomFloats(call.rows * kK, 4), out = RandomFloats(call.rows * kN, 5);
    backend_->Linear({&weight, F32View(x.data(), call.rows, kK), F32View(out.data(), call.rows, kN),
                      call.accumulate, call.reproducible, call.coarse});
    return out;
  }

  // What Multiply should give, in double.
  static std::vector<double> Want(DType dtype, const std::vector<std::byte>& data,
                                  const Call& call) {
    const std::vector<float> x = RandomFloats(call.rows * kK, 4);
    const std::vector<float> before = RandomFloats(call.rows * kN, 5);
    std::vector<double> want(before.begin(), before.end());
    if (!call.accumulate) std::ranges::fill(want, 0.0);
    std::vector<float> w(kK);
    for (int64_t n = 0; n < kN; ++n) {
      DequantizeRow(dtype, data.data() + n * *RowBytes(dtype, kK), kK, w.data());
      for (int64_t row = 0; row < call.rows; ++row) {
        for (int64_t k = 0; k < kK; ++k) want[row * kN + n] += double{x[row * kK + k]} * w[k];
      }
    }
    return want;
  }

  const std::unique_ptr<CpuBackend> backend_ =
      *CpuBackend::Create({2, std::string(Name(GetParam()))});
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(SecondCopyTest, MultipliesManyRowsWhereThereIsOne) {
  EXPECT_EQ(backend_->info().second_copies, SecondCopiesOf(GetParam()));
  for (const DType dtype : QuantizedTypes()) {
    SCOPED_TRACE(std::string(Traits(dtype).name));
    const auto data = RandomRows(dtype, kN, kK, 1);
    const auto one = Pack(dtype, data, {}), two = Pack(dtype, data, {.second_copy = true});
    const size_t copy_bytes = two->resident_bytes() - one->resident_bytes();
    EXPECT_EQ(two->second_copy_bytes(), copy_bytes);
    EXPECT_EQ(one->second_copy_bytes(), 0u);
    if (Has(dtype)) {
      EXPECT_GE(copy_bytes, static_cast<size_t>(kN * kK * 2));
    } else {
      EXPECT_EQ(copy_bytes, 0u);
    }
    for (const bool accumulate : {false, true}) {
      const Call many = {.accumulate = accumulate};
      const std::vector<float> got = Multiply(*two, many);
      EXPECT_EQ(SameBits(got, Multiply(*one, many)), !Has(dtype));
      // Weights in f16, but for levels of tiles.
      const double tolerance = GetParam() == Isa::kAmx ? 4e-3 : 4e-4;
      EXPECT_LT(RelativeError(got, Want(dtype, data, many)), tolerance);
      const Call few = {.rows = kFew, .accumulate = accumulate};
      EXPECT_TRUE(SameBits(Multiply(*two, few), Multiply(*one, few)));
      const Call alike = {.accumulate = accumulate, .reproducible = true};
      EXPECT_TRUE(SameBits(Multiply(*two, alike), Multiply(*one, alike)));
    }
  }
}

// A row's product by the copy does not hang on the others, nor on how jobs are cut.
TEST_P(SecondCopyTest, RowsOfTheCopyHaveTheSameBitsForAnyCount) {
  if (!Has(DType::kQ8_0)) GTEST_SKIP() << "no copies on this level";
  const auto data = RandomRows(DType::kQ8_0, kN, kK, 1);
  const auto weight = Pack(DType::kQ8_0, data, {.second_copy = true});
  const std::vector<float> all = Multiply(*weight, {.rows = 300});
  for (const int64_t rows : {16, 17, 107, 109, 193}) {
    const std::vector<float> some = Multiply(*weight, {.rows = rows});
    EXPECT_EQ(std::memcmp(all.data(), some.data(), some.size() * sizeof(float)), 0) << rows;
  }
}

TEST_P(SecondCopyTest, CoarseRowsAreTheCopysToo) {
  const auto data = RandomRows(DType::kQ4_1, kN, kK, 1);
  const auto one = Pack(DType::kQ4_1, data, {}),
             two = Pack(DType::kQ4_1, data, {.second_copy = true});
  Call mixed;
  for (int64_t row = 0; row < kMany; ++row) mixed.coarse.push_back(row % 3 != 0);
  const std::vector<float> got = Multiply(*two, mixed);
  EXPECT_EQ(SameBits(got, Multiply(*one, mixed)), !Has(DType::kQ4_1));
  EXPECT_LT(RelativeError(got, Want(DType::kQ4_1, data, mixed)), Has(DType::kQ4_1) ? 4e-4 : 1e-2);
}

TEST_P(SecondCopyTest, GateAndUpMayHaveOne) {
  const auto gate_data = RandomRows(DType::kQ8_0, kN, kK, 1);
  const auto up_data = RandomRows(DType::kQ8_0, kN, kK, 2);
  std::vector<float> x = RandomFloats(kMany * kK, 4);
  for (float& value : x) value *= 0.01f;  // where SiLU is not linear
  std::vector<std::vector<float>> outs;
  for (const bool second_copy : {false, true}) {
    const auto gate = Pack(DType::kQ8_0, gate_data, {.second_copy = second_copy});
    const auto up = Pack(DType::kQ8_0, up_data, {.second_copy = second_copy});
    std::vector<float>& out = outs.emplace_back(kMany * kN);
    backend_->GateUp(
        {gate.get(), up.get(), F32View(x.data(), kMany, kK), F32View(out.data(), kMany, kN)});
  }
  EXPECT_LT(RelativeError(outs[1], {outs[0].begin(), outs[0].end()}), 1e-3);
  EXPECT_EQ(SameBits(outs[0], outs[1]), !Has(DType::kQ8_0));
}

// A layer's attention weights of two types.
TEST_P(SecondCopyTest, PartsOfOneWeightChooseForThemselves) {
  const auto q = RandomRows(DType::kQ8_0, 40, kK, 1), v = RandomRows(DType::kQ6_K, 37, kK, 2);
  const WeightSlice slices[] = {{DType::kQ8_0, 40, kK, q.data(), {}},
                                {DType::kQ6_K, 37, kK, v.data(), {}}};
  const auto one = *backend_->PackLinear(slices, {});
  const auto two = *backend_->PackLinear(slices, {.second_copy = true});
  const std::vector<float> got = Multiply(*two, {}), want = Multiply(*one, {});
  EXPECT_LT(RelativeError(got, {want.begin(), want.end()}), 1e-3);
  for (int64_t row = 0; row < kMany; ++row) {
    const auto same = [&](int64_t begin, int64_t end) {
      return std::equal(got.begin() + row * kN + begin, got.begin() + row * kN + end,
                        want.begin() + row * kN + begin);
    };
    EXPECT_EQ(same(0, 40), !Has(DType::kQ8_0));
    EXPECT_EQ(same(40, kN), !Has(DType::kQ6_K));
  }
}

TEST_P(SecondCopyTest, OtherArithmeticHasNone) {
  const auto data = RandomRows(DType::kQ8_0, kN, kK, 1);
  for (const ComputeDType compute :
       {ComputeDType::kInt8, ComputeDType::kBF16, ComputeDType::kF32}) {
    const auto one = Pack(DType::kQ8_0, data, {.compute = compute});
    const auto two = Pack(DType::kQ8_0, data, {.compute = compute, .second_copy = true});
    EXPECT_EQ(one->resident_bytes(), two->resident_bytes());
  }
}

// 1000 * 100 is beyond 65,504.
TEST_P(SecondCopyTest, WeightsBeyondF16HaveNone) {
  auto data = RandomRows(DType::kQ8_0, kN, kK, 1);
  const _Float16 scale = 1000;
  std::byte* const block = data.data() + 70 * *RowBytes(DType::kQ8_0, kK) + 3 * 34;
  std::memcpy(block, &scale, sizeof(scale));
  block[2 + 5] = std::byte{100};
  const auto one = Pack(DType::kQ8_0, data, {}),
             two = Pack(DType::kQ8_0, data, {.second_copy = true});
  EXPECT_EQ(one->resident_bytes(), two->resident_bytes());
  EXPECT_TRUE(SameBits(Multiply(*one, {}), Multiply(*two, {})));
}

TEST_P(SecondCopyTest, TheGreatestIsFoundAsWithoutIt) {
  const auto data = RandomRows(DType::kQ8_0, kN, kK, 1);
  std::vector<float> x = RandomFloats(kMany * kK, 4);
  std::vector<int32_t> tokens[2];
  for (const bool second_copy : {false, true}) {
    const auto weight = Pack(DType::kQ8_0, data, {.argmax = true, .second_copy = second_copy});
    tokens[second_copy].resize(kMany);
    backend_->LinearArgMax({weight.get(), F32View(x.data(), kMany, kK), tokens[second_copy]});
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_NE(tokens[0], std::vector<int32_t>(kMany, LinearArgMaxArgs::kUndecided));
}

INSTANTIATE_TEST_SUITE_P(Levels, SecondCopyTest, testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(SecondCopiesTest, PlainCodeAloneHasThem) {
  EXPECT_EQ(SecondCopiesOf(Isa::kPortable).size(), QuantizedTypes().size());
  EXPECT_TRUE(SecondCopiesOf(Isa::kAvx2).empty());
  EXPECT_TRUE(SecondCopiesOf(Isa::kAmx).empty());
}

}  // namespace
}  // namespace refrain::kernels::cpu
