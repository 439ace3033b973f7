// The error of f16 attention with f32 sums beside that of ChunkAttention's published kernel, which
// sums values in f16, on that kernel's shapes (heads of 128, chunks of 64, all keys shared).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/chunk_attention.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "kernels/reference/kv_element.h"
#include "kernels/worse.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/cuda/emulated_attention.h"

namespace refrain::kernels::cuda {
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

// Chunk by chunk: weights against the chunk's own largest score, rounded to f16; products with the
// values summed in f16; the chunks' outputs merged in f16. Scores and sums of weights in f32 there,
// in double here.
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

class AttentionErrorTest : public ::testing::TestWithParam<AttentionKernel> {};

TEST_P(AttentionErrorTest, IsAtMostAQuarterOfThatOfF16Sums) {
  // The kernel for Hopper has a form for few queries and one for many.
  for (const auto& [slots, keys] : {std::pair(16, 1024), {16, 2048}, {64, 1024}, {64, 2048}}) {
    AttentionScenario scenario = SharedByAll(slots, keys);
    std::vector<float> want, got;
    const ChunkAttentionArgs reference = scenario.Args(want);
    ReferenceAttention(reference);
    const std::vector<float> theirs = AttendWithF16Sums(reference, keys);
    EmulatedAttention attention(GetParam(), 4);
    attention.SetPool(reference.kv, NumChunks(reference.plan), reference.layer);
    const ChunkAttentionArgs args = scenario.Args(got);
    ASSERT_TRUE(attention.Takes(args));
    ASSERT_TRUE(attention.Attend(args).ok());
    const double own_error = WorstError(got, want), their_error = WorstError(theirs, want);
    EXPECT_LE(own_error, 0.25 * their_error) << slots << " rows, " << keys << " keys";
    // That it is the kernel with f16 sums that is compared with, and no other.
    EXPECT_LT(their_error, 0.05);
    std::printf("%d rows, %d keys: %.2g, with f16 sums %.2g: %.2f of it\n", slots, keys, own_error,
                their_error, own_error / their_error);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionErrorTest,
                         ::testing::Values(AttentionKernel::kGeneric, AttentionKernel::kMma,
                                           AttentionKernel::kHopper),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace refrain::kernels::cuda
