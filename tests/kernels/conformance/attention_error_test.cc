// What attention's arithmetic and the type of the cache cost, by every kernel of the CUDA back
// ends. Prints what it finds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "kernels/reference/kv_element.h"
#include "kernels/worse.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/cuda/attention_on_device.h"
#include "tests/support/cuda_cases.h"

namespace refrain::kernels {
namespace {

constexpr int kDim = 128, kChunk = 64;
constexpr int kStep =
    16;  // keys that one product of its tensor cores sums, exactly but for the end

float RoundToF16(double x) { return F16ToF32(F32ToF16(static_cast<float>(x))); }

AttentionScenario SharedByAll(int slots, int keys) {
  AttentionScenario scenario({1, 1, kDim, kChunk, DType::kF16}, slots, keys / kChunk);
  const int run = scenario.AddRun(std::vector<int>(keys / kChunk, kChunk), 1);
  for (int slot = 0; slot < slots; ++slot) {
    scenario.Attend(run, slot);
    scenario.Activate(slot, 1);
  }
  scenario.Finish();
  for (float& q : scenario.q()) q = RoundToF16(q);
  return scenario;
}

// As ChunkAttention's published kernel computes. Chunk by chunk: weights against the chunk's own
// largest score, rounded to f16; products with the values summed in f16; the chunks' outputs merged
// in f16. Scores and sums of weights in f32 there, in double here.
std::vector<float> AttendWithF16Sums(const ChunkAttentionArgs& args, int keys) {
  const auto element = [&](auto load, int key, int dim) {
    return static_cast<double>(
        load(args.kv, {args.plan.chunks[key / kChunk].chunk, args.layer, 0, key % kChunk, dim}));
  };
  std::vector<double> k, v;
  for (int key = 0; key < keys; ++key) {
    for (int dim = 0; dim < kDim; ++dim) {
      k.push_back(element(&LoadKey, key, dim));
      v.push_back(element(&LoadValue, key, dim));
    }
  }
  std::vector<float> out;
  for (int64_t row = 0; row < args.q.rows; ++row) {
    const float* const q = args.q.F32Row(row);
    std::vector<float> o(kDim, 0.0f);
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int begin = 0; begin < keys; begin += kChunk) {
      double weights[kChunk], chunk_most = -std::numeric_limits<double>::infinity(), chunk_sum = 0;
      for (int i = 0; i < kChunk; ++i) {
        double score = 0;
        for (int dim = 0; dim < kDim; ++dim) score += q[dim] * k[(begin + i) * kDim + dim];
        weights[i] = score * args.scale;
        chunk_most = std::max(chunk_most, weights[i]);
      }
      for (double& weight : weights) {
        weight = std::exp(weight - chunk_most);
        chunk_sum += weight;
        weight = RoundToF16(weight);
      }
      const double both = std::max(most, chunk_most);
      const double old_part = std::exp(most - both), new_part = std::exp(chunk_most - both);
      for (int dim = 0; dim < kDim; ++dim) {
        float values = 0;
        for (int step = 0; step < kChunk; step += kStep) {
          double exact = values;
          for (int i = step; i < step + kStep; ++i)
            exact += weights[i] * v[(begin + i) * kDim + dim];
          values = RoundToF16(exact);
        }
        o[dim] = RoundToF16(o[dim] * old_part + values * new_part);
      }
      sum = sum * old_part + chunk_sum * new_part;
      most = both;
    }
    for (const float value : o) out.push_back(RoundToF16(value / sum));
  }
  return out;
}

double WorstError(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = Worse(worst, std::abs(static_cast<double>(got[i]) - want[i]));
  }
  return worst;
}

// A back end and the kernel that it uses wherever that has the shape.
class AttentionErrorTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  static std::vector<float> Attend(AttentionScenario& scenario) {
    const auto& [name, kernel] = GetParam();
    const auto backend = refrain::testing::MakeCudaBackend(name, kernel);
    AttentionOnDevice attention(*backend, scenario);
    backend->ChunkAttention(attention.args);
    return attention.out.Read();
  }
};

// With f32 sums, on the shapes of the published kernel, which sums values in f16: heads of 128,
// chunks of 64, all keys shared.
TEST_P(AttentionErrorTest, IsAtMostAQuarterOfThatOfF16Sums) {
  // The kernel for Hopper has a form for few queries and one for many.
  for (const auto& [slots, keys] : {std::pair(16, 1024), {16, 2048}, {64, 1024}, {64, 2048}}) {
    AttentionScenario scenario = SharedByAll(slots, keys);
    const std::vector<float> want = ReferenceAttention(scenario);
    std::vector<float> unused;
    const std::vector<float> theirs = AttendWithF16Sums(scenario.Args(unused), keys);
    const std::vector<float> got = Attend(scenario);
    const double own_error = WorstError(got, want), their_error = WorstError(theirs, want);
    EXPECT_LE(own_error, 0.25 * their_error) << slots << " rows, " << keys << " keys";
    // That it is the kernel with f16 sums that is compared with, and no other.
    EXPECT_LT(their_error, 0.05);
    std::printf("%d rows, %d keys: %.2g, with f16 sums %.2g: %.2f of it\n", slots, keys, own_error,
                their_error, own_error / their_error);
  }
}

// Distances of outputs of single heads from the right ones, over the length of those.
struct HeadErrors {
  double rms = 0, worst = 0;
};

HeadErrors ErrorsOfHeads(const std::vector<float>& got, const std::vector<float>& want,
                         int head_dim) {
  HeadErrors errors;
  double squares = 0;
  for (size_t head = 0; head < want.size(); head += head_dim) {
    double error = 0, length = 0;
    for (size_t i = head; i < head + head_dim; ++i) {
      error += std::pow(double{got[i]} - want[i], 2);
      length += std::pow(double{want[i]}, 2);
    }
    errors.worst = Worse(errors.worst, std::sqrt(error / length));
    squares += error / length;
  }
  errors.rms = std::sqrt(squares / (static_cast<double>(want.size()) / head_dim));
  return errors;
}

// K and V as a model computes them, stored in the types that a cache may have, against attention to
// what was not rounded, in double arithmetic. An element of e4m3 is up to 2^-4 of itself off,
// 2^-5.3 in the mean square. Values' errors are the output's; a key's moves its weight by as much
// of a score, which are some units here: less than 2^-4 together, and of f16 and bf16 by what they
// have bits more.
TEST_P(AttentionErrorTest, OfTheCachesTypeAgainstUnroundedKeysAndValues) {
  for (const int head_dim : {64, 128}) {
    AttentionShape shape = {4, 2, head_dim, 64, DType::kF32};
    AttentionScenario exact = SharedRuns(shape);
    const std::vector<float> want = ReferenceAttention(exact);
    double last = 0;
    for (const auto& [dtype, limit] :
         {std::pair(DType::kF16, 0x1p-10), {DType::kBF16, 0x1p-7}, {DType::kF8E4M3, 0x1p-4}}) {
      shape.kv_dtype = dtype;
      AttentionScenario stored = SharedRuns(shape);
      stored.TakeKeysAndValuesOf(exact);
      const HeadErrors errors = ErrorsOfHeads(Attend(stored), want, head_dim);
      std::printf("heads of %d, K and V in %s: off by %.2g of an output's length, at most %.2g\n",
                  head_dim, std::string(Traits(dtype).name).c_str(), errors.rms, errors.worst);
      EXPECT_LT(errors.rms, limit) << Traits(dtype).name;
      // That it is the type that was rounded to, and not another one.
      EXPECT_GT(errors.rms, 4 * last) << Traits(dtype).name;
      last = errors.rms;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Backends, AttentionErrorTest,
    ::testing::Combine(::testing::ValuesIn(refrain::testing::CudaBackendNames()),
                       ::testing::Values("fastest", "mma", "generic")),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

}  // namespace
}  // namespace refrain::kernels
