// The CUDA back end as a whole on the emulated device: announced steps, failures.

#include "kernels/cuda/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/reference/half_float.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/backends.h"
#include "tests/kernels/conformance/device_array.h"
#include "tests/kernels/cuda/attention_on_device.h"

namespace refrain::kernels::cuda {
namespace {

using emulated::EmulatedCard;
using emulated::EmulatedOptions;
using emulated::MakeEmulatedRuntime;
using testing::HasSubstr;

std::unique_ptr<CudaBackend> Make(const EmulatedOptions& options = {}) {
  return *CudaBackend::Create(MakeEmulatedRuntime(options));
}

// Steps of one generation whose lengths grow use the list that is there; another generation has
// another plan, even at the same address.
TEST(CudaBackendTest, ANewGenerationIsANewPlan) {
  const AttentionShape shape = {2, 1, 16, 16, DType::kF32};
  AttentionScenario one(shape, 2, 16), other(shape, 2, 16);
  for (AttentionScenario* const scenario : {&one, &other}) {
    const int shared = scenario->AddRun({16, 16}, 1), own = scenario->AddRun({16, 5}, 100);
    scenario->Attend(scenario == &one ? shared : own, 0);
    scenario->Attend(scenario == &one ? own : shared, 1);
    scenario->Activate(0, 1);
    scenario->Activate(1, 1, 7);
    scenario->Finish();
  }
  const auto backend = Make();
  std::vector<AttentionRun> runs;
  std::vector<RunSlot> slots;
  AttentionOnDevice first(*backend, one), second(*backend, other);
  runs.assign(first.args.plan.runs.begin(), first.args.plan.runs.end());
  slots.assign(first.args.plan.slots.begin(), first.args.plan.slots.end());
  first.args.plan.runs = runs;
  first.args.plan.slots = slots;
  backend->BeginStep(first.Inputs(1));
  backend->ChunkAttention(first.args);
  ExpectClose(first.out.Read(), ReferenceAttention(one), 1e-5, 1e-5);
  // One key more for slot 1: the same list.
  one.steps()[1].key_end = 8;
  backend->BeginStep(first.Inputs(1));
  backend->ChunkAttention(first.args);
  ExpectClose(first.out.Read(), ReferenceAttention(one), 1e-5, 1e-5);
  // The other plan in the same memory.
  std::ranges::copy(second.args.plan.runs, runs.begin());
  std::ranges::copy(second.args.plan.slots, slots.begin());
  second.args.plan.runs = runs;
  second.args.plan.slots = slots;
  backend->BeginStep(second.Inputs(2));
  backend->ChunkAttention(second.args);
  ExpectClose(second.out.Read(), ReferenceAttention(other), 1e-5, 1e-5);
}

// An array that changed after it was announced is taken as it is now.
TEST(CudaBackendTest, AnnouncedArraysAreKnownByTheirContent) {
  const auto backend = Make();
  const std::vector<float> values = {1, 2, 3, 4};
  const WeightSlice slice{DType::kF32, 4, 1, reinterpret_cast<const std::byte*>(values.data()), {}};
  const auto table = *backend->PackLinear({&slice, 1}, {.embedding = true});
  const DeviceFloats out(*backend, std::vector<float>(2));
  std::vector<int32_t> ids = {3, 1};
  StepInputs inputs;
  inputs.ids = ids;
  backend->BeginStep(inputs);
  backend->Embed({table.get(), ids, F32View(out.data(), 2, 1)});
  EXPECT_EQ(out.Read(), (std::vector<float>{4, 2}));
  ids[0] = 0;
  backend->Embed({table.get(), ids, F32View(out.data(), 2, 1)});
  EXPECT_EQ(out.Read(), (std::vector<float>{1, 2}));
}

// Many uploads one after the other, nothing waited for in between: none overwrites another.
TEST(CudaBackendTest, UploadsOnTheSpotKeepTheirContent) {
  const auto backend = Make();
  std::vector<float> values(64);
  for (int i = 0; i < 64; ++i) values[i] = static_cast<float>(i);
  const WeightSlice slice{
      DType::kF32, 64, 1, reinterpret_cast<const std::byte*>(values.data()), {}};
  const auto table = *backend->PackLinear({&slice, 1}, {.embedding = true});
  const DeviceFloats out(*backend, std::vector<float>(64));
  for (int32_t i = 0; i < 64; ++i) {
    const std::vector<int32_t> ids = {i};
    backend->Embed({table.get(), ids, F32View(out.data() + i, 1, 1)});
  }
  EXPECT_EQ(out.Read(), values);
}

// --- Failures ---

// Another thread has no device at first, and this one turns to another before each call.
TEST(CudaBackendTest, LaunchesGoToItsOwnDeviceFromAnyThread) {
  const auto first = Make(), second = Make({.devices = 2, .index = 1});
  const auto turn_away = [] { MakeEmulatedRuntime({.devices = 3, .index = 2}); };
  const auto embed = [&](CudaBackend& backend, float scale) {
    const std::vector<float> values = {1 * scale, 2 * scale, 3 * scale};
    const WeightSlice slice{
        DType::kF32, 3, 1, reinterpret_cast<const std::byte*>(values.data()), {}};
    const auto table = *backend.PackLinear({&slice, 1}, {.embedding = true});
    const DeviceFloats out(backend, std::vector<float>(2));
    const std::vector<int32_t> ids = {2, 0};
    StepInputs inputs;
    inputs.ids = ids;
    turn_away();
    backend.BeginStep(inputs);
    turn_away();
    backend.Embed({table.get(), ids, F32View(out.data(), 2, 1)});
    EXPECT_EQ(out.Read(), (std::vector<float>{3 * scale, scale}));
  };
  embed(*first, 1);
  embed(*second, 2);
  std::thread([&] {
    embed(*second, 3);
    embed(*first, 4);
  }).join();
}

TEST(CudaBackendTest, AnErrorOfTheDeviceEndsTheBackEnd) {
  const auto backend = Make({.failing_call = "Kernel", .failing_call_index = 1});
  const DeviceFloats x(*backend, {1, 2}), y(*backend, {3, 4});
  const AddArgs args = {F32View(x.data(), 1, 2), F32View(y.data(), 1, 2)};
  backend->Add(args);
  EXPECT_TRUE(backend->Synchronize().ok());
  backend->Add(args);
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = backend->Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("CUDA device 0 (emulated) failed: kernel Add"));
    backend->Add(args);
  }
}

TEST(CudaBackendTest, ALaunchWithoutMemoryFailsTheStepAndNotTheNext) {
  const auto backend = Make({.failing_call = "Launch",
                             .failing_call_index = 0,
                             .failing_code = absl::StatusCode::kResourceExhausted});
  const DeviceFloats x(*backend, {1, 2}), y(*backend, {3, 4});
  const AddArgs args = {F32View(x.data(), 1, 2), F32View(y.data(), 1, 2)};
  backend->Add(args);
  backend->Add(args);
  const absl::Status status = backend->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("launch of Add: injected refusal"));
  EXPECT_EQ(x.Read(), (std::vector<float>{1, 2}));
  backend->Add(args);
  EXPECT_EQ(x.Read(), (std::vector<float>{4, 6}));
}

TEST(CudaBackendTest, AFailedUploadFailsTheStepAndNotTheNext) {
  // The first event is recorded behind the upload of the ids.
  const auto backend = Make({.failing_call = "Record", .failing_call_index = 0});
  const std::vector<float> values = {1, 2};
  const WeightSlice slice{DType::kF32, 2, 1, reinterpret_cast<const std::byte*>(values.data()), {}};
  const auto table = *backend->PackLinear({&slice, 1}, {.embedding = true});
  const DeviceFloats out(*backend, {7});
  const std::vector<int32_t> ids = {1};
  backend->Embed({table.get(), ids, F32View(out.data(), 1, 1)});
  EXPECT_THAT(backend->Synchronize().message(), HasSubstr("Record: injected failure"));
  backend->Embed({table.get(), ids, F32View(out.data(), 1, 1)});
  EXPECT_EQ(out.Read(), std::vector<float>{2});
}

// A norm leaves its result in 16 bits for the product behind it, which must not read that once the
// result is another one.
TEST(CudaBackendTest, ProductsReadTheXThatIsThere) {
  constexpr int64_t kRows = 6, kCols = 64, kOut = 32;
  const auto backend = Make({});
  std::vector<uint16_t> weights(kOut * kCols);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = F32ToF16(static_cast<float>(i % 13) - 6);
  const WeightSlice slice{
      DType::kF16, kOut, kCols, reinterpret_cast<const std::byte*>(weights.data()), {}};
  const auto weight = *backend->PackLinear({&slice, 1}, {});
  std::vector<float> x(kRows * kCols), other(kRows * kCols);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 7) - 3;
    other[i] = static_cast<float>(i % 5);
  }
  const DeviceFloats in(*backend, x), ones(*backend, std::vector<float>(kCols, 1.0f));
  const DeviceFloats normed(*backend, x), out(*backend, std::vector<float>(kRows * kOut));
  const auto norm = [&] {
    backend->RmsNorm({1e-5,
                      F32View(in.data(), kRows, kCols),
                      ones.data(),
                      {},
                      F32View(normed.data(), kRows, kCols),
                      1,
                      weight.get()});
  };
  const auto product_of = [&](const DeviceFloats& of) {
    backend->Linear(
        {weight.get(), F32View(of.data(), kRows, kCols), F32View(out.data(), kRows, kOut)});
    return out.Read();
  };
  product_of(normed);  // takes the room
  norm();
  const std::vector<float> behind_norm = product_of(normed);
  EXPECT_EQ(behind_norm, product_of(DeviceFloats(*backend, normed.Read())));
  const std::vector<float> of_other = product_of(DeviceFloats(*backend, other));
  EXPECT_NE(of_other, behind_norm);
  norm();
  const auto* const bytes = reinterpret_cast<const std::byte*>(other.data());
  ASSERT_TRUE(backend->device()
                  .CopyFromHost(reinterpret_cast<std::byte*>(normed.data()), bytes,
                                other.size() * sizeof(float))
                  .ok());
  EXPECT_EQ(product_of(normed), of_other);  // copied over
  norm();
  const AddArgs add = {F32View(normed.data(), kRows, kCols), F32View(normed.data(), kRows, kCols)};
  backend->Add(add);
  const std::vector<float> doubled = product_of(normed);
  EXPECT_EQ(doubled, product_of(DeviceFloats(*backend, normed.Read())));  // computed over
  EXPECT_NE(doubled, behind_norm);
}

// Launches of a product with a weight of type `reader`, of a norm, and of the product again, which
// reads that, on a back end that got weights of the types `packed` of as many columns before.
int64_t LaunchesOfNormAndProduct(const std::vector<DType>& packed, DType reader, bool told) {
  constexpr int64_t kRows = 6, kCols = 64, kOut = 32;
  const std::vector<std::byte> zeros(kOut * kCols * sizeof(float));
  for (int64_t launches = 0;; ++launches) {
    const auto backend = Make({.failing_call = "Launch",
                               .failing_call_index = launches,
                               .failing_code = absl::StatusCode::kResourceExhausted});
    std::vector<std::unique_ptr<LinearWeight>> others;
    const auto pack = [&](DType dtype) {
      const WeightSlice slice{dtype, kOut, kCols, zeros.data(), {}};
      return *backend->PackLinear({&slice, 1}, {});
    };
    for (const DType dtype : packed) others.push_back(pack(dtype));
    const auto weight = pack(reader);
    const DeviceFloats x(*backend, std::vector<float>(kRows * kCols, 1.0f));
    const DeviceFloats normed(*backend, std::vector<float>(kRows * kCols));
    const DeviceFloats out(*backend, std::vector<float>(kRows * kOut));
    const TensorView of = F32View(normed.data(), kRows, kCols);
    const LinearArgs product = {weight.get(), of, F32View(out.data(), kRows, kOut)};
    backend->Linear(product);  // takes the room
    backend->RmsNorm({1e-5,
                      F32View(x.data(), kRows, kCols),
                      x.data(),
                      {},
                      of,
                      1,
                      told ? weight.get() : nullptr});
    backend->Linear(product);
    if (backend->Synchronize().ok()) return launches;
  }
}

// A model's embedding in bf16 is there before its layers' quantised weights, which are multiplied
// by f16.
TEST(CudaBackendTest, ANormLeavesTheTypeOfTheProductThatReadsIt) {
  for (const DType reader : {DType::kBF16, DType::kF16, DType::kQ8_0}) {
    const int64_t alone = LaunchesOfNormAndProduct({}, reader, true);
    EXPECT_EQ(LaunchesOfNormAndProduct({DType::kBF16, DType::kF16}, reader, true), alone);
    EXPECT_EQ(LaunchesOfNormAndProduct({DType::kF16, DType::kBF16}, reader, true), alone);
    EXPECT_EQ(LaunchesOfNormAndProduct({}, reader, false), alone + 1) << "rounds by itself";
  }
}

// Operations behind it would compute with what was there before.
TEST(CudaBackendTest, AFailedCopyToTheDeviceFailsTheStepAndNotTheNext) {
  const auto backend = Make({.failing_call = "Copy", .failing_call_index = 2});
  const DeviceFloats x(*backend, {1, 2}), y(*backend, {3, 4});
  const AddArgs args = {F32View(x.data(), 1, 2), F32View(y.data(), 1, 2)};
  const float other[2] = {5, 6};
  const absl::Status copied =
      backend->device().CopyFromHost(reinterpret_cast<std::byte*>(y.data()),
                                     reinterpret_cast<const std::byte*>(other), sizeof(other));
  EXPECT_THAT(copied.message(), HasSubstr("Copy: injected failure"));
  backend->Add(args);
  EXPECT_THAT(backend->Synchronize().message(), HasSubstr("Copy: injected failure"));
  EXPECT_EQ(x.Read(), (std::vector<float>{1, 2}));
  backend->Add(args);
  EXPECT_EQ(x.Read(), (std::vector<float>{4, 6}));
}

// RESOURCE_EXHAUSTED is what a full KV cache is told by.
TEST(CudaBackendTest, ACopyOnTheDeviceWithoutMemoryIsNoFullPool) {
  const auto backend = Make({.failing_call = "CopyAsync",
                             .failing_call_index = 0,
                             .failing_code = absl::StatusCode::kResourceExhausted});
  const DeviceBuffer bytes = *backend->device().Allocate(16, false);
  const absl::Status status = backend->device().Copy(bytes.data(), bytes.data() + 8, 8);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("CopyAsync: injected failure"));
}

TEST(CudaBackendTest, ScratchThatDoesNotFitFailsTheStepAndNotTheNext) {
  const auto backend = Make({.memory_bytes = 400000});
  const std::vector<float> values(4 * 4, 1.0f);
  const WeightSlice slice{DType::kF32, 4, 4, reinterpret_cast<const std::byte*>(values.data()), {}};
  const auto weight = *backend->PackLinear({&slice, 1}, {});
  constexpr int64_t kManyRows = 30000;
  const DeviceFloats x(*backend, std::vector<float>(4, 1.0f));
  const DeviceFloats out(*backend, std::vector<float>(4));
  // All rows are the same one: it is the scratch that does not fit.
  TensorView many_x = F32View(x.data(), kManyRows, 4), many_out = F32View(out.data(), kManyRows, 4);
  many_x.stride = many_out.stride = 0;
  backend->GateUp({weight.get(), weight.get(), many_x, many_out});
  const absl::Status status = backend->Synchronize();
  if (status.ok()) {
    GTEST_FAIL() << "480,000 bytes should not fit into 400,000";
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("need 4"));
  backend->GateUp({weight.get(), weight.get(), F32View(x.data(), 1, 4), F32View(out.data(), 1, 4)});
  EXPECT_NEAR(out.Read()[0], 4 * 4 / (1 + std::exp(-4.0)), 1e-5);
}

// Each growth waits for the device, and recorded steps are none behind it.
TEST(CudaBackendTest, ScratchDoesNotGrowWithEveryRow) {
  const auto card = std::make_shared<EmulatedCard>();
  const auto backend = Make({.card = card});
  const std::vector<float> values(4 * 4, 1.0f);
  const WeightSlice slice{DType::kF32, 4, 4, reinterpret_cast<const std::byte*>(values.data()), {}};
  const auto weight = *backend->PackLinear({&slice, 1}, {});
  const DeviceFloats x(*backend, std::vector<float>(200 * 4, 1.0f));
  const DeviceFloats out(*backend, std::vector<float>(200 * 4));
  int growths = 0;
  for (int64_t rows = 40; rows <= 60; ++rows) {
    const size_t before = card->used_bytes;
    backend->GateUp(
        {weight.get(), weight.get(), F32View(x.data(), rows, 4), F32View(out.data(), rows, 4)});
    ASSERT_TRUE(backend->Synchronize().ok());
    growths += card->used_bytes != before;
  }
  EXPECT_EQ(growths, 1);
}

// Of operations that the step does not name among others: gate, sums of split products, tile list,
// partial states, counters, positions, and arrays that come with the step or beside it. Nor an
// event, for which a driver may find no memory either.
TEST(CudaBackendTest, AStepNeedsNoMemoryBesideWhatWasReservedForIt) {
  constexpr int64_t kCols = 1024, kOut = 64, kStepRows = 8;
  const auto card = std::make_shared<EmulatedCard>();
  const auto backend = Make({.card = card});
  const std::vector<uint16_t> values(kOut * kCols, 0x3f80);
  const WeightSlice slice{
      DType::kBF16, kOut, kCols, reinterpret_cast<const std::byte*>(values.data()), {}};
  const auto weight = *backend->PackLinear({&slice, 1}, {});
  const DeviceFloats normed(*backend, std::vector<float>(kStepRows * kCols));
  const DeviceFloats x(*backend, std::vector<float>(kStepRows * kCols, 1.0f));
  const DeviceFloats out(*backend, std::vector<float>(kStepRows * kOut));
  const DeviceFloats norm(*backend, std::vector<float>(kCols, 1.0f));
  AttentionScenario scenario({2, 1, 16, 16, DType::kF32, /*window_tokens=*/600}, 2, 64);
  scenario.Attend(scenario.AddRun(std::vector<int>(30, 16), 1), 0);
  scenario.Attend(scenario.AddRun(std::vector<int>(30, 16), 100), 1);
  scenario.Activate(0, 1);
  scenario.Activate(1, static_cast<int>(kStepRows) - 1);
  scenario.Finish();
  AttentionOnDevice attention(*backend, scenario);
  ASSERT_TRUE(
      backend->ReserveFor({.rows = kStepRows, .ffn_size = kOut, .attention = attention.args}).ok());

  card->used_bytes += size_t{1} << 30;
  const int64_t events = card->events;
  for (uint64_t generation = 1; generation <= 2; ++generation) {  // buffers are used in turn
    backend->BeginStep(attention.Inputs(generation));
    backend->ChunkAttention(attention.args);
    for (int64_t rows = 1; rows <= kStepRows; ++rows) {
      const TensorView some_x = F32View(x.data(), rows, kCols);
      const TensorView some_out = F32View(out.data(), rows, kOut);
      const std::vector<int32_t> indexes(static_cast<size_t>(rows), 0);
      backend->RmsNorm({1e-5, some_x, norm.data(), indexes, F32View(normed.data(), rows, kCols)});
      backend->Linear({weight.get(), some_x, some_out});
      backend->GateUp({weight.get(), weight.get(), some_x, some_out});
    }
    EXPECT_EQ(backend->Synchronize(), absl::OkStatus());
  }
  EXPECT_EQ(card->events, events);
  card->used_bytes -= size_t{1} << 30;
}

TEST(CudaBackendTest, WeightsThatDoNotFitSayWhatIsNeededAndWhatThereIs) {
  const auto backend = Make({.memory_bytes = 100000});
  const std::vector<float> values(300 * 100);
  const WeightSlice slice{
      DType::kF32, 300, 100, reinterpret_cast<const std::byte*>(values.data()), {}};
  const absl::Status status = backend->PackLinear({&slice, 1}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("need 124800 bytes of device memory, have 100000"));
}

TEST(CudaBackendTest, RefusesDevicesThatAreTooOld) {
  const auto backend = CudaBackend::Create(MakeEmulatedRuntime({.major = 7, .minor = 5}));
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(backend.status().message(), HasSubstr("compute capability 7.5; at least 8.0"));
}

TEST(CudaBackendTest, ADeviceNumberBeyondTheLastNamesThoseThereAre) {
  const auto backend = CudaBackend::Create(CudaOptions{.device = 7});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(backend.status().message(), HasSubstr("no CUDA device 7; devices: 0"));
}

// Every call of a short life fails once: a status comes out, never a crash, and nothing leaks.
TEST(CudaBackendTest, AnyCallMayFail) {
  for (int64_t n = 0; n < 60; ++n) {
    auto made =
        CudaBackend::Create(MakeEmulatedRuntime({.failing_call = "", .failing_call_index = n}));
    if (!made.ok()) continue;
    CudaBackend& backend = **made;
    const std::vector<float> values(64, 1.0f);
    const WeightSlice slice{
        DType::kF32, 8, 8, reinterpret_cast<const std::byte*>(values.data()), {}};
    auto weight = backend.PackLinear({&slice, 1}, {});
    auto buffer = backend.device().Allocate(4096, false);
    if (!weight.ok() || !buffer.ok()) continue;
    const TensorView x = F32View(reinterpret_cast<float*>(buffer->data()), 2, 8);
    const TensorView out = F32View(x.F32Row(0) + 100, 2, 8);
    const std::vector<int32_t> ids = {1, 7};
    StepInputs inputs;
    inputs.ids = ids;
    backend.BeginStep(inputs);
    backend.Embed({weight->get(), ids, x});
    backend.GateUp({weight->get(), weight->get(), x, out});
    const absl::Status status = backend.Synchronize();
    std::vector<float> read(16);
    const absl::Status copied = backend.device().CopyToHost(
        reinterpret_cast<std::byte*>(read.data()), reinterpret_cast<std::byte*>(out.data), 64);
    if (status.ok() && copied.ok()) {
      EXPECT_NEAR(read[15], 8 * 8 / (1 + std::exp(-8.0)), 1e-4) << n;
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cuda
