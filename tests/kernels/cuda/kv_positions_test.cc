// Positions that windows are told by, as chunks are written, copied and taken by others: what a
// step brings of them, and that attention sees those of its own step.

#include "kernels/cuda/kv_positions.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/cuda/attention_on_device.h"

namespace refrain::kernels::cuda {
namespace {

using emulated::EmulatedCard;
using emulated::EmulatedOptions;

constexpr int kTokens = 16;  // of a chunk
constexpr AttentionShape kShape = {2, 1, 16, kTokens, DType::kF32, /*window_tokens=*/20};
constexpr int kOlderChunks = 3;  // of the plan, that hold no row's own token

// Decode steps of two slots in a pool of many chunks. The reference's chunks stay where they are.
class Steps {
 public:
  Steps(CudaBackend& backend, int num_chunks)
      : backend_(backend),
        num_chunks_(num_chunks),
        scenario_(Scenario(num_chunks)),
        on_device_(backend, scenario_),
        other_out_(backend, on_device_.host_out) {
    ChunkAttentionArgs& args = on_device_.args;
    kept_.assign(args.plan.chunks.begin(), args.plan.chunks.end());
    chunks_ = kept_;
    args.plan.chunks = chunks_;
    kept_positions_.assign(args.kv.positions, args.kv.positions + num_chunks * kTokens);
    positions_ = kept_positions_;
    args.kv.positions = positions_.data();
  }

  // What happens before a step: a token is written at its place, in a chunk that was there.
  void Write(int older, int32_t token, int32_t position) {
    PutPosition(older, token, position);
    destinations_ = {{chunk(older), token}, {-1, 0}};
  }
  // Another sequence's tokens are in the chunk.
  void Refill(int older, std::mt19937& random) {
    for (int32_t token = 0; token < kTokens; ++token) {
      PutPosition(older, token, static_cast<int32_t>(random() % 90));
    }
    ++generation_;
  }
  // A copy takes the chunk's place in the plan, and something else is written where it was.
  void Copy(int older, int32_t to) {
    for (const RunChunk& one : chunks_) {
      if (one.chunk == to) return;
    }
    const int32_t from = chunk(older);
    const KvPoolView& kv = on_device_.args.kv;
    EXPECT_TRUE(
        backend_.device()
            .Copy(kv.base + to * kv.chunk_bytes, kv.base + from * kv.chunk_bytes, kv.chunk_bytes)
            .ok());
    for (int32_t token = 0; token < kTokens; ++token) {
      positions_[to * kTokens + token] = std::exchange(positions_[from * kTokens + token], 1000);
    }
    chunks_[Index(older)].chunk = to;
    ++generation_;
  }
  void ChangePlan() { ++generation_; }

  void Run(bool other_out = false) {
    ChunkAttentionArgs args = on_device_.args;
    if (other_out) args.out.data = other_out_.data();
    StepInputs inputs = on_device_.Inputs(generation_);
    inputs.ids = ids_;
    inputs.positions = {args.row_positions, ids_.size()};
    inputs.destinations = destinations_;
    inputs.pass = args.out.data;
    backend_.RunStep(inputs, [&] { backend_.ChunkAttention(args); });
    destinations_ = {{-1, 0}, {-1, 0}};
  }
  void ExpectRight(const std::vector<float>& want, bool other_out = false) const {
    ExpectClose((other_out ? other_out_ : on_device_.out).Read(), want, 1e-5, 1e-5);
  }
  std::vector<float> Want() {
    std::vector<float> want;
    ChunkAttentionArgs args = scenario_.Args(want);
    args.kv.positions = kept_positions_.data();
    ReferenceBackend().ChunkAttention(args);
    return want;
  }
  int num_chunks() const { return num_chunks_; }

 private:
  static AttentionScenario Scenario(int num_chunks) {
    AttentionScenario scenario(kShape, 2, num_chunks);
    scenario.Attend(scenario.AddRun({kTokens, kTokens, 9}, 1), 0);
    scenario.Attend(scenario.AddRun({kTokens, 5}, 100), 1);
    for (const int slot : {0, 1}) scenario.Activate(slot, 1);
    scenario.Finish();
    return scenario;
  }
  static size_t Index(int older) { return older < 2 ? older : 3; }
  int32_t chunk(int older) const { return chunks_[Index(older)].chunk; }
  void PutPosition(int older, int32_t token, int32_t position) {
    positions_[chunk(older) * kTokens + token] = position;
    kept_positions_[kept_[Index(older)].chunk * kTokens + token] = position;
  }

  CudaBackend& backend_;
  const int num_chunks_;
  AttentionScenario scenario_;
  AttentionOnDevice on_device_;
  const DeviceFloats other_out_;
  std::vector<RunChunk> kept_, chunks_;              // the reference's, the device's
  std::vector<int32_t> kept_positions_, positions_;  // [num_chunks, kTokens]
  std::vector<KvSlotRef> destinations_ = {{-1, 0}, {-1, 0}};
  const std::vector<int32_t> ids_ = {1, 2};
  uint64_t generation_ = 1;
};

std::unique_ptr<CudaBackend> Make(const EmulatedOptions& options) {
  return *CudaBackend::Create(emulated::MakeEmulatedRuntime(options));
}

TEST(KvPositionsTest, ADecodeStepBringsThePositionsOfItsOwnTokens) {
  const auto card = std::make_shared<EmulatedCard>();
  const auto backend = Make({.card = card});
  Steps steps(*backend, /*num_chunks=*/1024);  // with 64 KiB of positions, the last chunk in use
  const auto run = [&] {
    const size_t before = card->uploaded_bytes;
    steps.Run();
    steps.ExpectRight(steps.Want());
    return card->uploaded_bytes - before;
  };
  for (int32_t i = 0; i < 8; ++i) {
    steps.Write(i % kOlderChunks, i, 10 * i);
    const size_t bytes = run();
    if (i > 0) {
      EXPECT_LT(bytes, 512u) << "step " << i;
    }
  }
  EXPECT_GT(backend->replayed_steps(), 3u);
  // The list of another plan comes with it, but no positions that are there.
  steps.ChangePlan();
  EXPECT_LT(run(), 2048u);
}

TEST(KvPositionsTest, WindowsSeeThePositionsOfTheirOwnStep) {
  const auto backend = Make({});
  Steps steps(*backend, /*num_chunks=*/1024);
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  // Few chunks at first, more than there is room for in the end.
  for (int older = 0; older < kOlderChunks; ++older) steps.Copy(older, 10 + older);
  int seen_changes = 0;
  for (int i = 0; i < 120; ++i) {
    const std::vector<float> before = steps.Want();
    const int older = below(kOlderChunks);
    switch (below(8)) {
      case 0:
        steps.Refill(older, random);
        break;
      case 1:
        steps.Copy(older, below(i < 60 ? 200 : steps.num_chunks()));
        break;
      default:
        steps.Write(older, below(kTokens), below(90));
    }
    const std::vector<float> want = steps.Want();
    seen_changes += want != before;
    steps.Run();
    if (below(2) == 0) steps.ExpectRight(want);
  }
  EXPECT_GT(seen_changes, 40);
  EXPECT_GT(backend->replayed_steps(), 40u);
}

// Two steps are on the device before the first result is read.
TEST(KvPositionsTest, AStepThatWaitsKeepsItsPositions) {
  const auto backend = Make({});
  Steps steps(*backend, /*num_chunks=*/64);
  std::mt19937 random(4);
  for (int i = 0; i < 12; ++i) {
    steps.Write(i % kOlderChunks, 3, 70);
    const std::vector<float> first = steps.Want();
    steps.Run();
    if (i % 4 == 1) steps.Copy(1, 20 + i);
    if (i % 4 == 2) steps.Refill(1, random);
    steps.Write(i % kOlderChunks, 3, 0);
    const std::vector<float> second = steps.Want();
    steps.Run(/*other_out=*/true);
    ASSERT_NE(first, second);
    steps.ExpectRight(first);
    steps.ExpectRight(second, /*other_out=*/true);
  }
}

// Whichever copy fails, its step fails; the next one brings what that one did not.
TEST(KvPositionsTest, WhatAFailedStepDidNotBringComesWithTheNext) {
  int failed = 0;
  for (int64_t n = 0; n < 20; ++n) {
    const auto backend = Make({.failing_call = "Record", .failing_call_index = n});
    Steps steps(*backend, /*num_chunks=*/64);
    for (int32_t i = 0; i < 5; ++i) {
      steps.Write(i % kOlderChunks, i, 15 * i);
      steps.Run();
      const absl::Status status = backend->Synchronize();
      failed += !status.ok();
      if (status.ok()) steps.ExpectRight(steps.Want());
    }
  }
  EXPECT_GT(failed, 8);
}

}  // namespace
}  // namespace refrain::kernels::cuda
