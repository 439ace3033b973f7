// Attention through the CUDA back end as a whole: its packing, its step arrays, the kernel that it
// chooses for the shape, and the kernels that it chooses on other cards. On a GPU every shape; on
// the emulated device, where each kernel has tests of its own, a few.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/cuda/emulated_attention.h"
#include "tests/support/cuda_cases.h"

namespace refrain::kernels {
namespace {

// Head dims, chunk sizes and groups by rule; KV types take turns, the tuned head dims have both
// 16-bit ones.
const AttentionShape kShapes[] = {
    {9, 3, 64, 64, DType::kF16},        {8, 2, 96, 64, DType::kBF16},
    {3, 3, 8, 16, DType::kF32},         {2, 1, 16, 32, DType::kF16},
    {9, 3, 40, 64, DType::kBF16},       {9, 3, 64, 16, DType::kF32},
    {9, 3, 64, 64, DType::kBF16},       {4, 1, 80, 128, DType::kF16},
    {8, 2, 96, 32, DType::kF16},        {8, 1, 128, 64, DType::kF32},
    {32, 32, 128, 64, DType::kF16},     {32, 8, 128, 64, DType::kBF16},
    {4, 2, 128, 16, DType::kBF16},      {4, 2, 128, 128, DType::kF16},
    {2, 2, 256, 32, DType::kF16},       {2, 1, 256, 64, DType::kBF16},
    {16, 2, 64, 32, DType::kBF16},      {5, 5, 24, 128, DType::kF16},
    {3, 1, 10, 16, DType::kBF16},       {9, 3, 64, 64, DType::kF16, 100},
    {4, 2, 40, 32, DType::kBF16, 37},   {8, 8, 16, 16, DType::kF32, 1},
    {6, 2, 128, 64, DType::kF16, 600},  {32, 1, 128, 128, DType::kBF16},
    {9, 3, 64, 64, DType::kF8E4M3},     {32, 8, 128, 64, DType::kF8E4M3},
    {4, 2, 40, 32, DType::kF8E4M3, 37},
};
// Every head dim and type of the kernels for tensor cores, few heads: the reference takes most of
// the time.
const AttentionShape kTensorCoreShapes[] = {
    {6, 2, 64, 64, DType::kF16},    {6, 2, 64, 16, DType::kBF16},  {6, 2, 64, 128, DType::kF8E4M3},
    {4, 2, 96, 128, DType::kF16},   {4, 2, 96, 64, DType::kBF16},  {4, 2, 96, 32, DType::kF8E4M3},
    {6, 2, 128, 32, DType::kF16},   {6, 2, 128, 64, DType::kBF16}, {6, 2, 128, 64, DType::kF8E4M3},
    {4, 2, 256, 64, DType::kF16},   {4, 2, 256, 16, DType::kBF16}, {4, 2, 256, 64, DType::kF8E4M3},
    {6, 2, 64, 64, DType::kF16, 90}};
const AttentionShape kEmulatedShapes[] = {
    {2, 1, 64, 16, DType::kF16}, {2, 2, 8, 16, DType::kF32}, {2, 1, 64, 16, DType::kF8E4M3}};

using MakeScenario = AttentionScenario (*)(const AttentionShape&);
struct NamedScenario {
  const char* name;
  MakeScenario make;
};
constexpr NamedScenario kScenarios[] = {
    {"unrelated", UnrelatedSlots}, {"shared", SharedRuns}, {"cached", RowsThatReadCachedKeys}};

// The fastest kernel is the one for this card; the others are there for other cards and shapes. On
// one multiprocessor a thread block has enough to do to use its shared memory again and again,
// which on all of them these keys are too few for (hopper_ring_test).
constexpr const char* kKernels[] = {"fastest", "one_multiprocessor", "mma", "generic"};

struct Case {
  std::string backend;
  std::string kernel;
  AttentionShape shape;
  NamedScenario scenario;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& backend : refrain::testing::CudaBackendNames()) {
    for (const std::string kernel : kKernels) {
      const bool one = kernel == "one_multiprocessor";
      std::span<const AttentionShape> shapes = kShapes;
      if (one) shapes = kTensorCoreShapes;
      if (backend != "cuda") shapes = kEmulatedShapes;
      for (const AttentionShape& shape : shapes) {
        for (const NamedScenario& scenario : kScenarios) {
          const bool wanted = kernel == "fastest" || (one && scenario.make == UnrelatedSlots);
          if ((backend != "cuda" || !wanted) && scenario.make != SharedRuns) continue;
          cases.push_back({backend, kernel, shape, scenario});
        }
      }
    }
  }
  return cases;
}

class CudaAttentionConformance : public ::testing::TestWithParam<Case> {
 protected:
  CudaAttentionConformance()
      : backend_(refrain::testing::MakeCudaBackend(GetParam().backend, GetParam().kernel)),
        scenario_(GetParam().scenario.make(GetParam().shape)) {}

  // Calls fn(got, want) in both modes, and reproducible.
  template <class Fn>
  void Compare(const Fn& fn) {
    std::vector<float> want, unused;
    ReferenceBackend().ChunkAttention(scenario_.Args(want));
    ChunkAttentionArgs args = scenario_.Args(unused);
    int32_t chunks = 0;
    for (const RunChunk& chunk : args.plan.chunks) chunks = std::max(chunks, chunk.chunk + 1);
    const DeviceArray<std::byte> pool(*backend_, cuda::RepackForCuda(args.kv, chunks, args.layer));
    const DeviceFloats q(*backend_, scenario_.q());
    args.kv.base = pool.data();
    args.kv.packing = backend_->info().kv_packing(args.kv.dtype);
    args.q.data = q.data();
    for (const auto& [mode, reproducible] :
         {std::pair(AttentionMode::kTwoPhase, false), std::pair(AttentionMode::kPaged, false),
          std::pair(AttentionMode::kTwoPhase, true)}) {
      SCOPED_TRACE(std::string(mode == AttentionMode::kPaged ? "paged" : "two_phase") +
                   (reproducible ? " reproducible" : ""));
      const DeviceFloats out(*backend_, std::vector<float>(want.size(), 1e9f));
      args.out.data = out.data();
      args.mode = mode;
      args.reproducible = reproducible;
      backend_->ChunkAttention(args);
      fn(out.Read(), want);
    }
  }

  std::unique_ptr<Backend> backend_;
  AttentionScenario scenario_;
};

// On scores and weights that 16 bits hold exactly, whatever the kernel rounds is exact.
TEST_P(CudaAttentionConformance, MatchesTheReferenceOnWholeScores) {
  scenario_.MakeScoresWhole();
  Compare([](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectClose(got, want, 2e-5, 2e-5);
  });
}

// Rounding q and a weight to the cache's type (to bf16 over fp8) moves the weight by up to 2^-9 or
// 2^-12 (f16)
// each, times the size of the score, at random. A key too many or too few is 2^-5 of a row.
TEST_P(CudaAttentionConformance, StaysWithinItsRounding) {
  const DType dtype = GetParam().shape.kv_dtype;
  const double limit = dtype == DType::kF32 ? 0x1p-15 : dtype == DType::kF16 ? 0x1p-9 : 0x1p-6;
  Compare([&](const std::vector<float>& got, const std::vector<float>& want) {
    ExpectRowsClose(got, want, GetParam().shape.head_dim, limit);
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaAttentionConformance, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return info.param.backend + "_" + info.param.kernel + "_" +
                                  info.param.shape.name() + "_" + info.param.scenario.name;
                         });

}  // namespace
}  // namespace refrain::kernels
