#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/worse.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/cuda/attention_on_device.h"
#include "tests/support/cuda_cases.h"

// Attention as the model calls it on the CUDA back ends, whichever kernel they choose. The kernels
// one by one, over many more shapes: tests/kernels/cuda.

namespace refrain::kernels {
namespace {

// The greatest distance of an output head from the reference's, over its length.
double WorstError(const std::vector<float>& got, const std::vector<float>& want, int head_dim) {
  double worst = 0;
  for (size_t head = 0; head < want.size(); head += head_dim) {
    double error = 0, length = 0;
    for (size_t i = head; i < head + head_dim; ++i) {
      error += std::pow(double{got[i]} - want[i], 2);
      length += std::pow(double{want[i]}, 2);
    }
    const double share = std::sqrt(error / length);
    worst = Worse(worst, share);
  }
  return worst;
}

// Kernels for tensor cores round queries and weights to the cache's type, which moves a weight by
// up to 2^-11 or 2^-8 (to bf16 over fp8), times the size of a score.
double Tolerance(DType kv) {
  return kv == DType::kF32 ? 4e-5 : kv == DType::kF16 ? 0x1p-8 : 0x1p-5;
}

class CudaAttention : public ::testing::TestWithParam<std::tuple<std::string, AttentionShape>> {};

TEST_P(CudaAttention, MatchesTheReferenceAnnouncedOrNot) {
  const auto& [name, shape] = GetParam();
  for (const auto make : {UnrelatedSlots, SharedRuns}) {
    AttentionScenario scenario = make(shape);
    const std::vector<float> want = ReferenceAttention(scenario);
    const auto backend = refrain::testing::MakeCudaBackend(name);
    AttentionOnDevice attention(*backend, scenario);
    backend->ChunkAttention(attention.args);
    EXPECT_LT(WorstError(attention.out.Read(), want, shape.head_dim), Tolerance(shape.kv_dtype));
    for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
      attention.args.mode = mode;
      backend->BeginStep(attention.Inputs(1));
      for (int layer = 0; layer < 2; ++layer) backend->ChunkAttention(attention.args);
      EXPECT_LT(WorstError(attention.out.Read(), want, shape.head_dim), Tolerance(shape.kv_dtype));
    }
  }
}

TEST_P(CudaAttention, NaNStaysNaNAndInItsRow) {
  const auto& [name, shape] = GetParam();
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  for (const auto make : {UnrelatedSlots, SharedRuns}) {
    AttentionScenario scenario = make(shape);
    const std::vector<float> want = ReferenceAttention(scenario);
    scenario.PoisonQueries();
    const auto backend = refrain::testing::MakeCudaBackend(name);
    AttentionOnDevice attention(*backend, scenario);
    backend->ChunkAttention(attention.args);
    std::vector<float> got = attention.out.Read();
    for (size_t i = 0; i < got.size(); ++i) {
      if (!scenario.poisoned(i / head_dim)) continue;
      ASSERT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
      got[i] = want[i];
    }
    EXPECT_LT(WorstError(got, want, shape.head_dim), Tolerance(shape.kv_dtype));
  }
}

// The fastest kernel, and others by name where they have the shape.
std::vector<std::string> KernelsOf(const AttentionShape& shape) {
  if (shape.kv_dtype == DType::kF32 || shape.head_dim % 32 != 0) return {""};
  return {"", "mma", "generic"};
}

// A row of one key has a score of -infinity by one head or the other, as if it saw none.
TEST_P(CudaAttention, AnInfiniteQueryIsNaNInItsRow) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto& [name, shape] = GetParam();
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  AttentionScenario scenario = UnrelatedSlots(shape);
  const std::vector<float> want = ReferenceAttention(scenario);
  const auto head_of = [&](size_t i) { return i / head_dim % shape.num_heads; };
  for (size_t i = 0; i < want.size(); i += head_dim) {
    if (head_of(i) < 2) scenario.q()[i] = head_of(i) == 0 ? kInfinity : -kInfinity;
  }
  for (const std::string& kernel : KernelsOf(shape)) {
    const auto backend = refrain::testing::MakeCudaBackend(name, kernel);
    AttentionOnDevice attention(*backend, scenario);
    backend->ChunkAttention(attention.args);
    std::vector<float> got = attention.out.Read();
    for (size_t i = 0; i < got.size(); ++i) {
      if (head_of(i) >= 2) continue;
      ASSERT_TRUE(std::isnan(got[i])) << kernel << ": element " << i << " is " << got[i];
      got[i] = want[i];
    }
    EXPECT_LT(WorstError(got, want, shape.head_dim), Tolerance(shape.kv_dtype)) << kernel;
  }
}

// The generic kernel keeps queries in f32, the others in the cache's type, fp8 in bf16.
TEST_P(CudaAttention, AQueryBeyondF16IsNaNWhereQueriesAreF16) {
  const auto& [name, shape] = GetParam();
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  AttentionScenario scenario = UnrelatedSlots(shape);
  const auto head_of = [&](size_t i) { return i / head_dim % shape.num_heads; };
  for (size_t i = 0; i < scenario.q().size(); i += head_dim) {
    if (head_of(i) < 2) scenario.q()[i] = head_of(i) == 0 ? 65520.0f : -1e5f;
  }
  const std::vector<float> want = ReferenceAttention(scenario);
  for (const std::string& kernel : KernelsOf(shape)) {
    const bool in_f16 =
        shape.kv_dtype == DType::kF16 && shape.head_dim % 32 == 0 && kernel != "generic";
    const auto backend = refrain::testing::MakeCudaBackend(name, kernel);
    AttentionOnDevice attention(*backend, scenario);
    backend->ChunkAttention(attention.args);
    std::vector<float> got = attention.out.Read();
    for (size_t i = 0; i < got.size(); ++i) {
      if (!in_f16 || head_of(i) >= 2) continue;
      ASSERT_TRUE(std::isnan(got[i])) << kernel << ": element " << i << " is " << got[i];
      got[i] = want[i];
    }
    EXPECT_LT(WorstError(got, want, shape.head_dim), Tolerance(shape.kv_dtype)) << kernel;
  }
}

TEST_P(CudaAttention, AKeyThatIsNoFiniteNumberHarmsOnlyRowsThatSeeIt) {
  const auto& [name, shape] = GetParam();
  for (const auto make : {UnrelatedSlots, SharedRuns}) {
    AttentionScenario scenario = make(shape);
    scenario.PoisonKeys();
    std::vector<float> want = ReferenceAttention(scenario);
    const auto backend = refrain::testing::MakeCudaBackend(name);
    AttentionOnDevice attention(*backend, scenario);
    for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
      attention.args.mode = mode;
      backend->ChunkAttention(attention.args);
      std::vector<float> got = attention.out.Read();
      size_t harmed = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << "element " << i;
        if (!std::isnan(want[i])) continue;
        got[i] = want[i] = 1.0f;
        ++harmed;
      }
      EXPECT_GT(harmed, 0u);
      EXPECT_LT(harmed, got.size());
      EXPECT_LT(WorstError(got, want, shape.head_dim), Tolerance(shape.kv_dtype));
      want = ReferenceAttention(scenario);
    }
  }
}

// K and V of as many rows as there is room for at the plan's chunks; the others are written
// nowhere.
std::vector<KvSlotRef> PlacesInPlan(const ChunkAttentionArgs& args, int64_t rows) {
  std::vector<KvSlotRef> places(rows, kWriteNowhere);
  std::set<int32_t> seen;
  std::vector<int32_t> chunks;
  for (const RunChunk& one : args.plan.chunks) {
    if (seen.insert(one.chunk).second) chunks.push_back(one.chunk);
  }
  const auto count = static_cast<int64_t>(chunks.size());
  for (int64_t row = 0; row < std::min(rows, count * args.kv.chunk_tokens); ++row) {
    places[row] = {chunks[row % count], static_cast<int32_t>(row / count)};
  }
  return places;
}

// As in a layer: its kernel may begin before RopeAppend's has ended, which has many rows here. On
// the emulated device kernels wait for each other all the same.
TEST_P(CudaAttention, SeesWhatRopeAppendWroteInFrontOfIt) {
  const auto& [name, shape] = GetParam();
  if (shape.window_tokens > 0) GTEST_SKIP() << "a step brings the positions of what it writes";
  AttentionScenario scenario = SharedRuns(shape);
  const auto backend = refrain::testing::MakeCudaBackend(name);
  AttentionOnDevice attention(*backend, scenario);
  ChunkAttentionArgs& args = attention.args;
  const std::vector<std::byte> pool = attention.pool.Read();

  const int64_t attending = args.q.rows, rows = attending + 2000;
  const int64_t cols = int64_t{shape.num_heads + 2 * shape.num_kv_heads} * shape.head_dim;
  const std::vector<float> values = RandomFloats(rows * cols, 3);
  const DeviceFloats qkv(*backend, values);
  const std::vector<float> no_cos(shape.head_dim / 2, 0.0f), sin(shape.head_dim / 2, 1.0f);
  const DeviceFloats device_cos(*backend, no_cos), device_sin(*backend, sin);
  const std::vector<int32_t> positions(rows, 0);
  std::vector<KvSlotRef> places = PlacesInPlan(args, attending);
  places.resize(rows, kWriteNowhere);
  args.q = {qkv.data(), DType::kF32, attending, args.q.cols, cols};
  const RopeAppendArgs rope{.layer = args.layer,
                            .num_heads = shape.num_heads,
                            .qkv = {qkv.data(), DType::kF32, rows, cols, cols},
                            .positions = positions,
                            .table = {device_cos.data(), device_sin.data(), 1, shape.head_dim},
                            .destinations = places,
                            .kv = args.kv};
  StepInputs inputs = attention.Inputs(1);
  inputs.positions = positions;
  inputs.destinations = places;
  inputs.pass = &rope;

  const auto put_back = [&] {
    ASSERT_TRUE(backend->Synchronize().ok());
    Device& device = backend->device();
    ASSERT_TRUE(device.CopyFromHost(attention.pool.data(), pool.data(), pool.size()).ok());
    ASSERT_TRUE(device
                    .CopyFromHost(reinterpret_cast<std::byte*>(qkv.data()),
                                  reinterpret_cast<const std::byte*>(values.data()),
                                  values.size() * sizeof(float))
                    .ok());
  };
  for (const AttentionMode mode : {AttentionMode::kTwoPhase, AttentionMode::kPaged}) {
    args.mode = mode;
    put_back();
    backend->ChunkAttention(args);
    const std::vector<float> without = attention.out.Read();
    put_back();
    backend->RopeAppend(rope);
    ASSERT_TRUE(backend->Synchronize().ok());
    backend->ChunkAttention(args);
    const std::vector<float> want = attention.out.Read();
    EXPECT_GT(WorstError(without, want, shape.head_dim), 0.5);
    for (int i = 0; i < 4; ++i) {  // the last ones are replayed
      put_back();
      backend->RunStep(inputs, [&] {
        backend->RopeAppend(rope);
        backend->ChunkAttention(args);
      });
      EXPECT_LT(WorstError(attention.out.Read(), want, shape.head_dim), 1e-6) << i;
    }
    inputs.pass = &args;  // another one
  }
}

const AttentionShape kShapes[] = {
    {4, 2, 40, 32, DType::kF32},    {6, 2, 64, 64, DType::kF32, 100}, {6, 2, 64, 64, DType::kF16},
    {4, 2, 96, 32, DType::kBF16},   {2, 1, 128, 64, DType::kF16, 90}, {3, 3, 10, 16, DType::kBF16},
    {6, 2, 64, 64, DType::kF8E4M3},
};

INSTANTIATE_TEST_SUITE_P(
    Backends, CudaAttention,
    ::testing::Combine(::testing::ValuesIn(refrain::testing::CudaBackendNames()),
                       ::testing::ValuesIn(kShapes)),
    [](const auto& info) {
      return std::get<0>(info.param) + "_" + std::get<1>(info.param).name();
    });

}  // namespace
}  // namespace refrain::kernels
