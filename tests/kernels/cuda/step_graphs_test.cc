// Steps whose launches are recorded and replayed, on the emulated device.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/cuda/attention_on_device.h"

namespace refrain::kernels::cuda {
namespace {

using testing::HasSubstr;

constexpr AttentionShape kShape = {2, 1, 16, 16, DType::kF32};

// Two slots with a run each; `swapped`: with that of the other.
std::unique_ptr<AttentionScenario> MakeScenario(bool swapped) {
  auto scenario = std::make_unique<AttentionScenario>(kShape, 2, 16);
  const int a = scenario->AddRun({16, 16}, 1), b = scenario->AddRun({16, 5}, 100);
  scenario->Attend(swapped ? b : a, 0);
  scenario->Attend(swapped ? a : b, 1);
  scenario->Activate(0, 1);
  scenario->Activate(1, 1, 7);
  scenario->Finish();
  return scenario;
}

// Decode steps of two slots: attention, and what a test adds.
class StepGraphsTest : public ::testing::Test {
 protected:
  void Start(const emulated::EmulatedOptions& options = {}, const CudaOptions& cuda = {}) {
    attention_.reset();
    backend_ = *CudaBackend::Create(emulated::MakeEmulatedRuntime(options), cuda);
    attention_ = std::make_unique<AttentionOnDevice>(*backend_, *scenario_);
    const AttentionPlanView& plan = attention_->args.plan;
    runs_.assign(plan.runs.begin(), plan.runs.end());
    slots_.assign(plan.slots.begin(), plan.slots.end());
    attention_->args.plan.runs = runs_;
    attention_->args.plan.slots = slots_;
  }
  void Step(uint64_t generation = 1) {
    StepInputs inputs = attention_->Inputs(generation);
    inputs.ids = ids_;
    inputs.pass = this;
    backend_->RunStep(inputs, [this] {
      ++calls_;
      backend_->ChunkAttention(attention_->args);
      if (also_) also_();
    });
  }
  void ExpectRight(AttentionScenario& scenario) {
    ExpectClose(attention_->out.Read(), ReferenceAttention(scenario), 1e-5, 1e-5);
  }

  const std::unique_ptr<AttentionScenario> scenario_ = MakeScenario(false);
  std::unique_ptr<CudaBackend> backend_;
  std::unique_ptr<AttentionOnDevice> attention_;
  std::vector<AttentionRun> runs_;
  std::vector<RunSlot> slots_;
  std::vector<int32_t> ids_ = {1, 2};
  std::function<void()> also_;
  int calls_ = 0;
};

// Lengths grow, then the plan is another one: the recorded launches see both.
TEST_F(StepGraphsTest, StepsOfAsManyRowsAreReplayedWithTheirOwnLengthsAndPlan) {
  Start();
  for (int32_t key_end = 7; key_end < 14; ++key_end) {
    scenario_->steps()[1].key_end = key_end;
    Step();
    ExpectRight(*scenario_);
  }
  EXPECT_EQ(backend_->replayed_steps(), 5u);  // all but the first and one more like it
  EXPECT_EQ(calls_, 3);
  const auto other = MakeScenario(true);
  ASSERT_EQ(other->q(), scenario_->q());
  std::vector<float> unused;
  const AttentionPlanView plan = other->Args(unused).plan;
  std::ranges::copy(plan.runs, runs_.begin());
  std::ranges::copy(plan.slots, slots_.begin());
  for (int32_t key_end = 7; key_end < 10; ++key_end) {
    other->steps()[1].key_end = key_end;
    std::ranges::copy(other->steps(), scenario_->steps().begin());
    Step(2);
    ExpectRight(*other);
  }
  EXPECT_EQ(backend_->replayed_steps(), 8u);
}

TEST_F(StepGraphsTest, APassIsReplayedForAsManyRowsOnly) {
  Start();
  for (int i = 0; i < 5; ++i) Step();
  EXPECT_EQ(backend_->replayed_steps(), 3u);
  ids_ = {1, 2, 3};
  Step();
  EXPECT_EQ(backend_->replayed_steps(), 3u);
  ids_ = {1, 2};
  Step();
  EXPECT_EQ(backend_->replayed_steps(), 4u);
  ExpectRight(*scenario_);
}

// Rows of a table by an array of its own, beside those of the step.
class LookUp {
 public:
  static constexpr float kValues[] = {10, 11, 12, 13};

  explicit LookUp(Backend& backend) : backend_(backend), out_(backend, std::vector<float>(1)) {
    const WeightSlice slice{DType::kF32, 4, 1, reinterpret_cast<const std::byte*>(kValues), {}};
    table_ = *backend.PackLinear({&slice, 1}, {.embedding = true});
  }
  void Take(int32_t row) {
    rows_[0] = row;
    backend_.Embed({table_.get(), rows_, F32View(out_.data(), 1, 1)});
  }
  float Read() const { return out_.Read()[0]; }

 private:
  Backend& backend_;
  const DeviceFloats out_;
  std::unique_ptr<LinearWeight> table_;
  std::vector<int32_t> rows_ = {0};
};

// A copy from this very step's arrays must not be played again.
TEST_F(StepGraphsTest, APassThatCopiesArraysOfItsOwnIsNotReplayed) {
  Start();
  LookUp look_up(*backend_);
  int32_t row = 0;
  also_ = [&] { look_up.Take(row); };
  for (int i = 0; i < 8; ++i) {
    row = i % 4;
    Step();
    EXPECT_EQ(look_up.Read(), LookUp::kValues[row]);
  }
  EXPECT_EQ(backend_->replayed_steps(), 0u);
  ExpectRight(*scenario_);
}

// More arrays than there are buffers for them: none may be left with an event that was recorded
// into a graph, for which nobody can wait.
TEST_F(StepGraphsTest, NothingIsCopiedWhileAPassIsRecorded) {
  Start();
  LookUp look_up(*backend_);
  also_ = [&] {
    for (int32_t i = 0; i < 16; ++i) look_up.Take(i % 4);
  };
  for (int i = 0; i < 4; ++i) {
    Step();
    EXPECT_EQ(backend_->Synchronize(), absl::OkStatus()) << "step " << i;
    EXPECT_EQ(look_up.Read(), LookUp::kValues[3]);
  }
  EXPECT_EQ(backend_->replayed_steps(), 0u);
}

// Whatever is allocated or freed, launches may lie elsewhere.
TEST_F(StepGraphsTest, AnAllocationEndsWhatWasRecorded) {
  Start();
  for (int i = 0; i < 5; ++i) Step();
  EXPECT_EQ(calls_, 3);
  {
    const DeviceFloats other(*backend_, {1});
    Step();
    EXPECT_EQ(calls_, 4);
  }
  for (int i = 0; i < 4; ++i) Step();
  EXPECT_EQ(calls_, 6);  // one more like it, and the recording
  ExpectRight(*scenario_);
}

TEST_F(StepGraphsTest, WhereRecordingFailsTheOperationsRun) {
  for (const char* call : {"BeginCapture", "EndCapture"}) {
    calls_ = 0;
    Start({.failing_call = call, .failing_call_index = 0});
    for (int32_t key_end = 7; key_end < 12; ++key_end) {
      scenario_->steps()[1].key_end = key_end;
      Step();
      EXPECT_TRUE(backend_->Synchronize().ok()) << call;
      ExpectRight(*scenario_);
    }
    EXPECT_EQ(backend_->replayed_steps(), 0u);
  }
}

// More of them than are kept, each twice, so that all are recorded anew: those given up may be
// running, and nobody waits for their ends.
TEST_F(StepGraphsTest, ManyNumbersOfRowsAreRecordedWithoutAWait) {
  const auto card = std::make_shared<emulated::EmulatedCard>();
  Start({.card = card});
  Step();
  const int64_t waits = card->stream_waits;
  for (int round = 0; round < 2; ++round) {
    for (size_t rows = 3; rows < 3 + StepGraphs::kLeastKept + 10; ++rows) {
      ids_.assign(rows, 1);
      for (int i = 0; i < 3; ++i) {
        scenario_->steps()[1].key_end = 7 + static_cast<int32_t>(rows + i) % 7;
        Step();
      }
    }
  }
  EXPECT_EQ(card->stream_waits, waits);
  ExpectRight(*scenario_);
  const uint64_t all = 2 * (StepGraphs::kLeastKept + 10);
  EXPECT_EQ(backend_->replayed_steps(), 2 * all);  // the recording, and the step behind it
  EXPECT_EQ(backend_->Synchronize(), absl::OkStatus());
}

// The step in flight replays it; the emulated device would tell if it were gone.
TEST_F(StepGraphsTest, APassOfAnotherLayoutEndsOnceNoStepRunsItWithoutAWait) {
  const auto card = std::make_shared<emulated::EmulatedCard>();
  Start({.card = card});
  for (int i = 0; i < 5; ++i) Step();
  EXPECT_EQ(backend_->replayed_steps(), 3u);
  const int64_t waits = card->stream_waits;
  const DeviceBuffer other = *backend_->device().Allocate(64, false);
  for (int i = 0; i < 5; ++i) Step();
  EXPECT_EQ(backend_->replayed_steps(), 7u);
  EXPECT_EQ(card->stream_waits, waits);
  EXPECT_EQ(backend_->Synchronize(), absl::OkStatus());
  ExpectRight(*scenario_);
}

// A daemon's slots, and a piece of a prompt beside them.
TEST_F(StepGraphsTest, EveryNumberOfRowsOfItsSlotsIsKept) {
  Start();
  std::vector<SlotStep> steps(64);
  std::ranges::copy(scenario_->steps(), steps.begin());
  attention_->args.steps = steps;
  Step();  // takes the memory that all of them need
  for (int round = 0; round < 2; ++round) {
    for (size_t rows = 1; rows <= 64 + 16; ++rows) {
      ids_.assign(rows, 1);
      for (int i = 0; i < 2; ++i) Step();
    }
    if (round == 0) calls_ = 0;
  }
  EXPECT_EQ(calls_, 0);
  EXPECT_EQ(backend_->replayed_steps(), 80u + 160u);
  ExpectRight(*scenario_);
}

// A clock that stands around whole passes does not see what happens inside.
TEST_F(StepGraphsTest, PassesThatAreLaunchedOneByOneAreCounted) {
  Start();
  const auto sampler = *backend_->MakeTokenSampler({.num_slots = 1, .vocab = 8});
  Step();  // takes the memory that all of them need
  for (const auto& [rows, unrecorded] : {std::pair(2, 2), {2, 2}, {2, 2}, {3, 3}, {2, 3}}) {
    ids_.assign(rows, 1);
    Step();
    EXPECT_EQ(sampler->times().unrecorded_steps, unrecorded);
  }
}

// Memory is given back, which waits for the stream: that cannot be recorded, and whatever is
// launched behind it is refused.
TEST_F(StepGraphsTest, WhatCannotBeRecordedRunsAndSpoilsNothing) {
  Start();
  DeviceBuffer scratch = *backend_->device().Allocate(4096, false);
  also_ = [&] {
    if (calls_ == 3) scratch = DeviceBuffer();
    backend_->ChunkAttention(attention_->args);
  };
  for (int32_t key_end = 7; key_end < 14; ++key_end) {
    scenario_->steps()[1].key_end = key_end;
    Step();
    ASSERT_TRUE(backend_->Synchronize().ok());
    ExpectRight(*scenario_);
  }
  EXPECT_GT(backend_->replayed_steps(), 0u);
}

TEST_F(StepGraphsTest, AReplayThatFailsFailsItsStepAndNotTheNext) {
  Start({.failing_call = "LaunchGraph", .failing_call_index = 1});
  for (int i = 0; i < 3; ++i) Step();
  EXPECT_TRUE(backend_->Synchronize().ok());
  Step();
  EXPECT_THAT(backend_->Synchronize().message(), HasSubstr("LaunchGraph: injected failure"));
  Step();
  ExpectRight(*scenario_);
}

// The launches of a step whose replay finds no memory are put on the device one by one.
TEST_F(StepGraphsTest, AReplayWithoutMemoryRunsItsOperations) {
  Start({.failing_call = "LaunchGraph",
         .failing_call_index = 1,
         .failing_code = absl::StatusCode::kResourceExhausted});
  for (int32_t key_end = 7; key_end < 12; ++key_end) {
    scenario_->steps()[1].key_end = key_end;
    Step();
    EXPECT_EQ(backend_->Synchronize(), absl::OkStatus());
    ExpectRight(*scenario_);
  }
  EXPECT_EQ(backend_->replayed_steps(), 2u);
  EXPECT_EQ(calls_, 4);  // the first, one more like it, the recording, and the one without memory
}

// --- Several models, or launches of several shapes, by one back end ---

// Attention of one model's steps, with a row and a pool of its own for each.
class Model {
 public:
  Model(CudaBackend& backend, AttentionScenario& scenario)
      : backend_(backend),
        scenario_(scenario),
        attention_(backend, scenario),
        ids_(scenario.num_rows()) {}

  ChunkAttentionArgs& args() { return attention_.args; }
  // The plans of all models have the same numbers.
  void Step(uint64_t generation = 1) {
    StepInputs inputs = attention_.Inputs(generation);
    inputs.ids = ids_;
    inputs.pass = this;
    const int32_t* const positions = attention_.args.row_positions;
    if (positions != nullptr) inputs.positions = {positions, ids_.size()};
    backend_.RunStep(inputs, [this] { backend_.ChunkAttention(attention_.args); });
  }
  void ExpectResultsOf(AttentionScenario& scenario) {
    ExpectRowsClose(attention_.out.Read(), ReferenceAttention(scenario),
                    static_cast<size_t>(attention_.args.q.cols), 0x1p-8);
  }
  void StepRight() {
    Step();
    ExpectResultsOf(scenario_);
  }

 private:
  CudaBackend& backend_;
  AttentionScenario& scenario_;
  AttentionOnDevice attention_;
  std::vector<int32_t> ids_;
};

// `slots` of a row each, with chunks of their own behind a run that they share, or without that.
AttentionScenario ManySlots(const AttentionShape& shape, int slots, bool shared,
                            uint32_t seed = 1) {
  AttentionScenario scenario(shape, slots, slots + 4);
  const int root = scenario.AddRun({16, 16}, seed);
  for (int slot = 0; slot < slots; ++slot) {
    if (shared) scenario.Attend(root, slot);
  }
  for (int slot = 0; slot < slots; ++slot) {
    scenario.Attend(scenario.AddRun({5}, seed + 100 * (slot + 1)), slot);
    scenario.Activate(slot, 1);
  }
  scenario.Finish();
  return scenario;
}

// Room for the larger shape's partial states is room for more of this one's than its recorded
// launches were told of: nothing is allocated when they come to be as many.
TEST(StepGraphsOfSeveralTest, APassIsNotReplayedWithLessRoomForPartialStatesThanItNeeds) {
  constexpr int kSlots = 130;
  AttentionScenario alone = ManySlots(kShape, kSlots, false);
  AttentionScenario shared = ManySlots(kShape, kSlots, true);
  AttentionScenario larger = ManySlots({8, 2, 64, 16, DType::kF32}, 2, true);
  const auto backend = *CudaBackend::Create(emulated::MakeEmulatedRuntime({}));
  Model model(*backend, shared), other(*backend, larger);
  std::vector<float> unused;
  const ChunkAttentionArgs of_alone = alone.Args(unused), of_shared = shared.Args(unused);
  const auto use = [&](const ChunkAttentionArgs& args) {
    model.args().plan = args.plan;
    model.args().steps = args.steps;
  };
  model.StepRight();
  other.StepRight();
  use(of_alone);
  for (int i = 0; i < 4; ++i) model.Step(2);
  EXPECT_GT(backend->replayed_steps(), 0u);
  model.ExpectResultsOf(alone);
  use(of_shared);
  model.Step(3);
  model.ExpectResultsOf(shared);
}

TEST(StepGraphsOfSeveralTest, ModelsThatTakeTurnsGetWhatIsTheirs) {
  const AttentionShape windowed = {2, 1, 16, 16, DType::kF32, /*window_tokens=*/30};
  AttentionScenario one = ManySlots(windowed, 40, true, 1);
  AttentionScenario alike = ManySlots(windowed, 40, false, 7);  // keeps other chunks
  AttentionScenario other = ManySlots({4, 2, 64, 16, DType::kF16}, 40, true, 9);
  const auto backend = *CudaBackend::Create(emulated::MakeEmulatedRuntime({}));
  Model a(*backend, one), b(*backend, alike), c(*backend, other);
  for (Model* const model : {&a, &b, &c}) model->StepRight();  // take their memory
  for (Model* const model : {&a, &c, &b, &a, &b, &c}) {
    const uint64_t replayed = backend->replayed_steps();
    model->StepRight();
    EXPECT_EQ(backend->replayed_steps(), replayed) << "behind another model's launches";
    for (int i = 0; i < 3; ++i) model->StepRight();
    EXPECT_GT(backend->replayed_steps(), replayed);
  }
}

TEST_F(StepGraphsTest, ProductsOfALibraryAreRecorded) {
  constexpr int64_t kRows = 8, kN = 40, kK = 24;
  emulated::EmulatedOptions options;
  options.library.present = true;
  Start(options, {.library = LibraryProducts::Options{.rows = {8}, .worth_it = 1e9f, .rounds = 1}});
  const std::vector<uint16_t> ones(kN * kK, 0x3c00);  // f16
  const WeightSlice slice{DType::kF16, kN, kK, reinterpret_cast<const std::byte*>(ones.data()), {}};
  const auto weight = *backend_->PackLinear({&slice, 1}, {});
  const DeviceFloats x(*backend_, std::vector<float>(kRows * kK, 0.5f));
  const DeviceFloats out(*backend_, std::vector<float>(kRows * kN));
  also_ = [&] {
    backend_->Linear({.weight = weight.get(),
                      .x = F32View(x.data(), kRows, kK),
                      .out = F32View(out.data(), kRows, kN),
                      .accumulate = true});
  };
  const int64_t products = *options.library.products;
  for (int i = 0; i < 5; ++i) Step();
  EXPECT_EQ(out.Read(), std::vector<float>(kRows * kN, 5 * 0.5f * kK));
  EXPECT_GE(backend_->replayed_steps(), 3u);
  EXPECT_EQ(*options.library.products, products + calls_);
  EXPECT_LT(calls_, 5);
}

}  // namespace
}  // namespace refrain::kernels::cuda
