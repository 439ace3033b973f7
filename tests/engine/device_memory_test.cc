// Engines on a card or a host whose memory is short: at the start, in the middle, beside one
// another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/device.h"
#include "tests/engine/device_engine.h"
#include "tests/engine/unforeseeing_backend.h"
#include "tests/support/forwarding_backend.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace device = kernels::cuda;
using Card = device::emulated::EmulatedCard;

// A card, the model on disk, and engines that use it.
class DeviceMemoryTest : public ::testing::Test {
 protected:
  EngineOptions Options(const std::string& kind = "cuda") const {
    EngineOptions options = SmallEngineOptions(model_);
    options.backend.kind = kind;
    options.kv_cache.memory_bytes = 512 << 10;
    return options;
  }
  // The card for "cuda" and "auto", else the host.
  static BackendChooser Chooser(size_t memory_bytes, const std::shared_ptr<Card>& card) {
    return [card, memory_bytes](const BackendOptions& options) -> absl::StatusOr<ChosenBackend> {
      if (options.kind == "cpu") return ChooseBackend(options);
      auto made = device::CudaBackend::Create(
          device::emulated::MakeEmulatedRuntime({.memory_bytes = memory_bytes, .card = card}));
      if (!made.ok()) return made.status();
      ChosenBackend chosen;
      chosen.backend = *std::move(made);
      return chosen;
    };
  }
  BackendChooser Chooser(size_t memory_bytes) const { return Chooser(memory_bytes, card_); }
  // Bytes that are in use on a card behind the start.
  static size_t UsedByStart(const EngineOptions& options) {
    const auto card = std::make_shared<Card>();
    const auto parts = MakeEngineParts(options, Chooser(64 << 20, card));
    EXPECT_TRUE(parts.ok()) << parts.status();
    return card->used_bytes;
  }

  const testing::TemporaryDirectory folder_;
  // A step takes 1 KiB of scratch for each of its tokens, and a little.
  const std::string model_ = WriteSmallModel(folder_, /*ffn_size=*/256);
  const std::shared_ptr<Card> card_ = std::make_shared<Card>();
};

std::vector<int32_t> Prompt(int32_t tokens, int32_t first) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < tokens; ++i) prompt.push_back((first + 37 * i) % 300);
  return prompt;
}

// With every kind of sampling.
std::vector<Request> LargeRequests(int32_t prompt_tokens, int32_t max_tokens) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 4; ++i) {
    Request request = RequestFor(Prompt(prompt_tokens + i, 11 * i), max_tokens);
    request.sampling.temperature = i % 2;
    request.sampling.seed = 5 + i;
    if (i == 2) request.logprobs.prompt_top = 0;
    if (i == 3) request.sampling.frequency_penalty = 1;
    requests.push_back(request);
  }
  return requests;
}

TEST_F(DeviceMemoryTest, AModelThatDoesNotFitSaysWhatItNeedsAndWhatThereIs) {
  const absl::Status status = MakeEngineParts(Options(), Chooser(50000)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("no room for the model: its weights are "),
                                      HasSubstr("50000 bytes were free")));
  EXPECT_EQ(card_->used_bytes, 0u);
}

class FullHost final : public kernels::Device {
 public:
  explicit FullHost(size_t available_bytes) : available_bytes_(available_bytes) {}
  absl::StatusOr<kernels::DeviceBuffer> Allocate(size_t, bool) override { return Nothing(); }
  absl::Status Copy(std::byte*, const std::byte*, size_t) override { return Nothing(); }
  absl::Status CopyToHost(std::byte*, const std::byte*, size_t) override { return Nothing(); }
  absl::Status CopyFromHost(std::byte*, const std::byte*, size_t) override { return Nothing(); }
  size_t AvailableBytes() const override { return available_bytes_; }

 private:
  const size_t available_bytes_;
  static absl::Status Nothing() { return absl::InternalError("nothing is to be done here"); }
  void Free(std::byte*, size_t) override {}
};

class BackendOfFullHost final : public testing::ForwardingBackend {
 public:
  BackendOfFullHost(std::unique_ptr<kernels::Backend> backend, size_t available_bytes)
      : ForwardingBackend(std::move(backend)), device_(available_bytes) {}
  kernels::Device& device() override { return device_; }

 private:
  FullHost device_;
};

BackendChooser FullHostChooser(size_t available_bytes) {
  return [available_bytes](const BackendOptions& options) -> absl::StatusOr<ChosenBackend> {
    absl::StatusOr<ChosenBackend> chosen = ChooseBackend(options);
    if (chosen.ok()) {
      chosen->backend =
          std::make_unique<BackendOfFullHost>(std::move(chosen->backend), available_bytes);
    }
    return chosen;
  };
}

// Its memory is counted when pages are written, not when they are asked for.
TEST_F(DeviceMemoryTest, AModelThatDoesNotFitOnTheHostIsRefusedBeforeItsPagesAreWritten) {
  const absl::Status status = MakeEngineParts(Options("cpu"), FullHostChooser(50000)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("no room for the model: its weights are "),
                                      HasSubstr("50000 bytes were free")));
}

// The file is in f32.
TEST_F(DeviceMemoryTest, WhatCountsIsWhatTheWeightsTakeAsTheyAreMultiplied) {
  for (const auto& [compute_dtype, fits] :
       {std::pair("f32", false), std::pair("auto", false), std::pair("bf16", true)}) {
    EngineOptions options = Options("cpu");
    options.backend.compute_dtype = compute_dtype;
    const absl::Status status = MakeEngineParts(options, FullHostChooser(160000)).status();
    EXPECT_EQ(!absl::IsResourceExhausted(status), fits) << compute_dtype << ": " << status;
  }
  EngineOptions options = Options("cpu");
  options.backend.compute_dtype = "bf16";
  const absl::Status status = MakeEngineParts(options, FullHostChooser(50000)).status();
  EXPECT_THAT(status.message(),
              HasSubstr(" bytes as they are multiplied (backend.compute_dtype; "));
}

// A GPU keeps blocks as they are also where it multiplies in f32.
TEST_F(DeviceMemoryTest, OnADeviceQuantisedWeightsInF32CountAsTheyAreInTheFile) {
  const testing::TemporaryDirectory folder;
  const auto model = testing::WriteTinyGguf({.matrix_dtype = kernels::DType::kQ4_1}, folder.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EngineOptions options = Options();
  options.model.path = *model;
  options.backend.compute_dtype = "f32";
  // 0.8 MiB of blocks, 4.9 MiB of floats.
  const auto parts = MakeEngineParts(options, Chooser(3 << 20));
  EXPECT_TRUE(parts.ok()) << parts.status();
}

// The weights fit as they are in the file, what else it needs does not.
TEST_F(DeviceMemoryTest, AModelThatAlmostFitsSaysWhatItNeedsAndWhatThereIs) {
  const absl::Status status = MakeEngineParts(Options(), Chooser(270000)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("270000 bytes were free: AllocateDevice: need "),
                                      HasSubstr(" free on device 0 (emulated)")));
  EXPECT_EQ(card_->used_bytes, 0u);
}

TEST_F(DeviceMemoryTest, ACacheThatDoesNotFitSaysWhatItNeedsAndWhatThereIs) {
  EngineOptions options = Options("auto");  // asked for: not the host's either
  options.kv_cache.memory_bytes = 8 << 20;
  const absl::Status status = MakeEngineParts(options, Chooser(1 << 20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("no room for the KV cache of 1024 chunks (kv_cache.memory_bytes)"),
                    HasSubstr("need 8388608 bytes of device memory, have ")));
}

// Half of the logits would fit.
TEST_F(DeviceMemoryTest, WhatDoesNotFitBesideACacheThatWasAskedForIsAnErrorUnderAutoToo) {
  EngineOptions options = Options("auto");
  options.max_sequences = 256;
  const size_t logits_bytes = 256 * 300 * sizeof(float);
  const absl::Status status =
      MakeEngineParts(options, Chooser(UsedByStart(options) - logits_bytes / 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("no room for logits and the choice of tokens beside the KV cache of "
                              "64 chunks (kv_cache.memory_bytes): AllocateDevice: need "),
                    HasSubstr(" bytes of device memory, have ")));
}

TEST_F(DeviceMemoryTest, ScratchThatDoesNotFitIsAnErrorThatNamesTheTokensOfAStep) {
  EngineOptions options = Options();
  options.step_token_budget = 1024;  // 1.7 MB of activations, 1 MB of scratch
  const absl::Status status = MakeEngineParts(options, Chooser(2'500'000)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("no room for the model: its weights are "),
                    HasSubstr("scratch for steps of 1024 tokens: AllocateDevice: need "),
                    HasSubstr("; engine.step_token_budget says how many there are")));
}

// Around what the start takes, whatever is left. A block that does not come aligned takes 4 KiB
// more, so that starts differ.
TEST_F(DeviceMemoryTest, AnEngineThatStartsAnswers) {
  const testing::TemporaryDirectory folder;
  EngineOptions options = Options();
  options.model.path = WriteSmallModel(folder);
  const size_t used = UsedByStart(options);
  int refused = 0, answered = 0;
  for (size_t bytes = used - (128 << 10); bytes <= used + (128 << 10); bytes += 32 << 10) {
    auto parts = MakeEngineParts(options, Chooser(bytes, std::make_shared<Card>()));
    if (!parts.ok()) {
      ++refused;
      EXPECT_EQ(parts.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(parts.status().message(),
                  AllOf(HasSubstr("(kv_cache.memory_bytes)"), HasSubstr(": need ")));
      continue;
    }
    DeviceEngine engine;
    engine.engine = *MakeEngine(*std::move(parts), options);
    EXPECT_EQ(engine.Run(RequestFor(Prompt(5, 3), 2)).status, absl::OkStatus()) << bytes - used;
    ++answered;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(answered, 0);
}

// Others have taken all that is left.
TEST_F(DeviceMemoryTest, StepsFindWhatTheStartTookForThem) {
  constexpr size_t kCardBytes = 4 << 20;
  const testing::TemporaryDirectory folder;
  // In bf16 activations are rounded into scratch of their own.
  for (const char* const compute_dtype : {"f32", "bf16"}) {
    for (const int64_t memory_bytes : {512 << 10, 0}) {
      EngineOptions options = Options();
      options.model.path = WriteSmallModel(folder);
      options.kv_cache.memory_bytes = memory_bytes;
      options.backend.compute_dtype = compute_dtype;
      const auto card = std::make_shared<Card>();
      const DeviceEngine engine = Serve(options, Chooser(kCardBytes, card));
      card->used_bytes += kCardBytes - card->used_bytes;
      std::vector<std::shared_ptr<TokenStream>> streams;
      for (const Request& request : LargeRequests(25, 2)) {
        streams.push_back(*engine.engine->Submit(request));
      }
      for (const auto& stream : streams) EXPECT_EQ(engine.Wait(*stream).status, absl::OkStatus());
      EXPECT_EQ(engine.engine->stats().steps_without_memory_total, 0)
          << compute_dtype << ", " << memory_bytes;
    }
  }
}

// A card that is full behind the start holds no second copy, and does not refuse the start for one.
TEST_F(DeviceMemoryTest, ASecondCopyTakesNoRoomFromWhatWasAskedFor) {
  const testing::TemporaryDirectory folder;
  const auto model = testing::WriteTinyGguf({.matrix_dtype = kernels::DType::kQ4_1}, folder.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EngineOptions options = Options("auto");
  options.reproducible = false;
  options.backend.compute_dtype = "auto";
  options.model.path = *model;
  options.kv_cache.memory_bytes = 4 << 20;
  const auto load = [&](SecondCopyOption wanted, size_t card_bytes) {
    options.model.second_copy = wanted;
    return MakeEngineParts(options, Chooser(card_bytes, std::make_shared<Card>()));
  };
  for (const SecondCopyOption wanted :
       {SecondCopyOption::kOff, SecondCopyOption::kAuto, SecondCopyOption::kOn}) {
    const auto parts = load(wanted, 8 << 20);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_THAT(parts->model.description,
                AllOf(HasSubstr("; cuda "), ::testing::Not(HasSubstr("second copy"))));
    EXPECT_EQ(parts->model.warning.find("second_copy") != std::string::npos,
              wanted == SecondCopyOption::kOn);
  }
  const auto roomy = load(SecondCopyOption::kOn, 32 << 20);
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  EXPECT_THAT(roomy->model.description, HasSubstr("2 of them a second copy in f16"));
}

TEST_F(DeviceMemoryTest, UnderAutoAModelThatDoesNotFitRunsOnTheHostAndTheLogSaysWhy) {
  const auto parts = MakeEngineParts(Options("auto"), Chooser(50000));
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(parts->model.warning, HasSubstr("cuda is not used: no room for the model"));
  EXPECT_THAT(parts->model.description, HasSubstr("; cpu "));
  EXPECT_EQ(card_->used_bytes, 0u);
}

TEST_F(DeviceMemoryTest, UnderAutoWhatFailsOnTheHostTooSaysBothReasons) {
  EngineOptions options = Options("auto");
  options.backend.isa = "sse9";
  const absl::Status status = MakeEngineParts(options, Chooser(50000)).status();
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("sse9"), HasSubstr("; cuda is not used: no room for the model")));
}

// Each takes its share of what the others left, until one finds too little and says so.
TEST_F(DeviceMemoryTest, SeveralEnginesOnOneCardShareItsMemory) {
  constexpr size_t kCardBytes = 5 << 20;
  EngineOptions options = Options();
  options.kv_cache.memory_bytes = 0;
  std::vector<DeviceEngine> engines;
  absl::Status refused;
  while (refused.ok() && engines.size() < 20) {
    auto parts = MakeEngineParts(options, Chooser(kCardBytes));
    refused = parts.status();
    if (refused.ok()) {
      engines.emplace_back();
      engines.back().engine = *MakeEngine(*std::move(parts), options);
    }
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("no room for the "));
  ASSERT_GE(engines.size(), 2u);
  const Request request = RequestFor(Prompt(20, 3), 4);
  const Output first = engines[0].Run(request);
  EXPECT_EQ(first.status, absl::OkStatus());
  ExpectSame(engines[1].Run(request), first, "the second engine");
  EXPECT_LT(engines.back().engine->stats().kv_capacity_tokens,
            engines[0].engine->stats().kv_capacity_tokens);
}

BackendChooser Unforeseeing(const BackendChooser& choose) {
  return [choose](const BackendOptions& options) -> absl::StatusOr<ChosenBackend> {
    absl::StatusOr<ChosenBackend> chosen = choose(options);
    if (chosen.ok()) {
      chosen->backend = std::make_unique<UnforeseeingBackend>(std::move(chosen->backend));
    }
    return chosen;
  };
}

// What steps need grows with their tokens; others have taken the rest.
TEST_F(DeviceMemoryTest, StepsWithoutMemoryRunAgainAsSmallerOnes) {
  constexpr size_t kCardBytes = 4 << 20;
  const DeviceEngine undisturbed = Serve(Options(), Chooser(kCardBytes, std::make_shared<Card>()));
  const DeviceEngine engine = Serve(Options(), Unforeseeing(Chooser(kCardBytes)));
  Request first = RequestFor({1}, 12);  // has whatever does not grow with steps' tokens allocated
  first.sampling.frequency_penalty = 1;
  EXPECT_EQ(engine.Run(first).status, absl::OkStatus());
  const size_t taken = kCardBytes - (12 << 10) - card_->used_bytes;
  card_->used_bytes += taken;
  const std::vector<Request> requests = LargeRequests(40, 6);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const Request& request : requests) streams.push_back(*engine.engine->Submit(request));
  for (size_t i = 0; i < streams.size(); ++i) {
    const Output output = engine.Wait(*streams[i]);
    ASSERT_EQ(output.status, absl::OkStatus());
    ExpectSame(output, undisturbed.Run(requests[i]), "request " + std::to_string(i));
  }
  EXPECT_GE(engine.engine->stats().steps_without_memory_total, 1);
  EXPECT_EQ(undisturbed.engine->stats().steps_without_memory_total, 0);
  EXPECT_EQ(engine.engine->health(), absl::OkStatus());
}

// A card that refuses launches, or another call, for want of memory: `count` from the one with this
// number on.
BackendChooser Refusing(int64_t index, int64_t count, const std::string& call = "Launch") {
  return [=](const BackendOptions&) -> absl::StatusOr<ChosenBackend> {
    auto made = device::CudaBackend::Create(device::emulated::MakeEmulatedRuntime(
        {.failing_call = call,
         .failing_call_index = index,
         .failing_calls = count,
         .failing_code = absl::StatusCode::kResourceExhausted}));
    if (!made.ok()) return made.status();
    ChosenBackend chosen;
    chosen.backend = *std::move(made);
    return chosen;
  };
}

// What the start fails of, which is before the first step.
int64_t CallsOfStart(const EngineOptions& options, const std::string& call = "Launch") {
  int64_t calls = 0;
  while (!MakeEngineParts(options, Refusing(calls, 1, call)).ok()) ++calls;
  return calls;
}

// Copies of a step's arrays, of a list of attention's or of positions among them: what did not come
// to be on the card is not taken for being there. A step has some thirty launches.
TEST_F(DeviceMemoryTest, AStepWithALaunchWithoutMemoryRunsAgain) {
  const testing::TemporaryDirectory folder;
  EngineOptions options = Options();
  options.model.path = WriteSmallModel(folder, 64, /*window_tokens=*/20);
  // The first has steps enough that none of those that fail has a single token, whenever the others
  // come.
  std::vector<Request> requests = LargeRequests(5, 2);
  requests[0].prompt = RequestFor(Prompt(80, 3), 3).prompt;
  requests[0].logprobs.prompt_top = 1;
  const std::string kF32 = "f32";
  for (const std::string& compute_dtype : {kF32, std::string("bf16")}) {
    options.backend.compute_dtype = compute_dtype;
    const DeviceEngine undisturbed = Serve(options, Chooser(64 << 20, std::make_shared<Card>()));
    std::vector<Output> expected;
    for (const Request& request : requests) expected.push_back(undisturbed.Run(request));
    const int64_t begin = CallsOfStart(options) + (compute_dtype == kF32 ? 0 : 2);
    for (int64_t launch = begin; launch < begin + 90; launch += launch < begin + 40 ? 4 : 17) {
      const DeviceEngine engine = Serve(options, Refusing(launch, 1));
      std::vector<std::shared_ptr<TokenStream>> streams;
      for (const Request& request : requests) streams.push_back(*engine.engine->Submit(request));
      for (size_t i = 0; i < streams.size(); ++i) {
        ExpectSame(engine.Wait(*streams[i]), expected[i],
                   "launch " + std::to_string(launch) + ", request " + std::to_string(i));
      }
      EXPECT_EQ(engine.engine->stats().steps_without_memory_total, 1) << launch;
      EXPECT_EQ(engine.engine->health(), absl::OkStatus()) << launch;
    }
  }
}

// Events behind copies of a step's arrays, and behind the tokens that it gives; of the clock's and
// of passes that are given up no step fails.
TEST_F(DeviceMemoryTest, AStepThatRecordsNoEventForWantOfMemoryRunsAgain) {
  const DeviceEngine undisturbed = Serve(Options(), Chooser(64 << 20, std::make_shared<Card>()));
  const std::vector<Request> requests = LargeRequests(5, 2);
  const int64_t begin = CallsOfStart(Options(), "Record");
  int64_t again = 0;
  for (int64_t record = begin; record < begin + 24; record += 5) {
    const DeviceEngine engine = Serve(Options(), Refusing(record, 1, "Record"));
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (const Request& request : requests) streams.push_back(*engine.engine->Submit(request));
    for (size_t i = 0; i < streams.size(); ++i) {
      const Output output = engine.Wait(*streams[i]);
      if (absl::IsResourceExhausted(output.status)) continue;  // of a step of one token
      ExpectSame(output, undisturbed.Run(requests[i]), "record " + std::to_string(record));
    }
    again += engine.engine->stats().steps_without_memory_total;
    EXPECT_EQ(engine.engine->health(), absl::OkStatus()) << record;
  }
  EXPECT_GE(again, 1);
}

TEST_F(DeviceMemoryTest, ACardThatRefusesEveryLaunchEndsRequestsAndNotTheEngine) {
  const DeviceEngine undisturbed = Serve(Options(), Chooser(64 << 20, std::make_shared<Card>()));
  const DeviceEngine engine = Serve(Options(), Refusing(CallsOfStart(Options()), 12));
  const Request request = RequestFor(Prompt(40, 5), 4);
  Output output = engine.Run(request);
  EXPECT_EQ(output.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(output.status.message(), HasSubstr("launch of "));
  for (int i = 0; i < 12 && !output.status.ok(); ++i) output = engine.Run(request);
  ExpectSame(output, undisturbed.Run(request), "behind them");
  EXPECT_EQ(engine.engine->health(), absl::OkStatus());
}

TEST_F(DeviceMemoryTest, ARequestForWhichNoStepIsSmallEnoughEndsAndTheNextMayRun) {
  constexpr size_t kCardBytes = 4 << 20;
  const DeviceEngine engine = Serve(Options(), Unforeseeing(Chooser(kCardBytes)));
  const size_t taken = kCardBytes - card_->used_bytes;
  card_->used_bytes += taken;
  const Output output = engine.Run(RequestFor(Prompt(40, 5), 4));
  EXPECT_EQ(output.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(output.status.message(), HasSubstr("bytes of device memory, have 0 free"));
  EXPECT_EQ(engine.engine->health(), absl::OkStatus());
  card_->used_bytes -= taken;
  EXPECT_EQ(engine.Run(RequestFor(Prompt(40, 5), 4)).status, absl::OkStatus());
}

}  // namespace
}  // namespace refrain::engine
