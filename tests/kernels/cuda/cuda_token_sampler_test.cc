// Sampling as steps of the back end, on the emulated device.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "tests/kernels/conformance/device_array.h"

namespace refrain::kernels::cuda {
namespace {

using emulated::EmulatedOptions;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kVocab = 40;
constexpr int32_t kSlots = 3;

// Logits whose best token is this one, per row.
std::vector<float> Peaks(const std::vector<int32_t>& tokens) {
  std::vector<float> logits(tokens.size() * kVocab);
  for (size_t row = 0; row < tokens.size(); ++row) {
    logits[row * kVocab + static_cast<size_t>(tokens[row])] = 5.0f;
  }
  return logits;
}

// A device with a table whose row i is {i, -i}.
struct Device {
  explicit Device(const EmulatedOptions& options = {})
      : backend(*CudaBackend::Create(emulated::MakeEmulatedRuntime(options))) {
    std::vector<float> values;
    for (int64_t i = 0; i < kVocab; ++i) {
      values.push_back(static_cast<float>(i));
      values.push_back(static_cast<float>(-i));
    }
    const WeightSlice slice{
        DType::kF32, kVocab, 2, reinterpret_cast<const std::byte*>(values.data()), {}};
    table = *backend->PackLinear({&slice, 1}, {.embedding = true});
    sampler = *backend->MakeTokenSampler({.num_slots = kSlots, .vocab = kVocab});
  }

  // Samples greedily: slots[i] from row i.
  void Sample(const DeviceFloats& logits, const std::vector<int32_t>& slots) {
    std::vector<SamplingRow> rows(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      rows[i].logits_row = static_cast<int32_t>(i);
      rows[i].slot = slots[i];
    }
    sampler->Sample(
        {rows, {}, {}, F32View(logits.data(), static_cast<int64_t>(slots.size()), kVocab)});
  }
  std::vector<int32_t> Await() {
    const auto tokens = sampler->AwaitStep();
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    if (!tokens.ok()) return {};
    logprobs.assign(tokens->logprobs.begin(), tokens->logprobs.end());
    return {tokens->newest.begin(), tokens->newest.end()};
  }

  std::unique_ptr<CudaBackend> backend;
  std::unique_ptr<LinearWeight> table;
  std::unique_ptr<TokenSampler> sampler;
  std::vector<std::span<const LogprobEntry>> logprobs;  // of the step awaited last
};

// The second step is launched before the first is waited for, and reads its tokens on the device.
TEST(CudaTokenSamplerTest, AStepReadsTheTokensOfTheOneBeforeWithoutTheHost) {
  Device d;
  const DeviceFloats first(*d.backend, Peaks({7, 9, 11})), second(*d.backend, Peaks({30, 31}));
  const DeviceFloats rows(*d.backend, std::vector<float>(4 * 2));
  d.Sample(first, {0, 1, 2});
  EXPECT_TRUE(d.sampler->EndStep().ok());
  const std::vector<int32_t> ids = {IdOfSlot(2), 5, IdOfSlot(0), IdOfSlot(1)};
  d.backend->Embed({d.table.get(), ids, F32View(rows.data(), 4, 2), d.sampler->sampled()});
  d.Sample(second, {2, 0});
  EXPECT_TRUE(d.sampler->EndStep().ok());
  EXPECT_THAT(d.Await(), ElementsAre(7, 9, 11));
  EXPECT_THAT(d.Await(), ElementsAre(31, 9, 30));  // slot 1 took no part in the second
  EXPECT_THAT(rows.Read(), ElementsAre(11, -11, 5, -5, 7, -7, 9, -9));
}

TEST(CudaTokenSamplerTest, EditsAndAllowedTokensComeWithTheRows) {
  Device d;
  const DeviceFloats logits(*d.backend, Peaks({7, 7, 7}));
  std::vector<SamplingRow> rows(3);
  for (int32_t i = 0; i < 3; ++i) rows[i].logits_row = rows[i].slot = i;
  const std::vector<LogitEdit> edits = {{.token = 7, .banned = 1}, {.token = 20, .bias = 9.0f}};
  const std::vector<int32_t> allowed = {33, 34};
  rows[0].edit_end = 1;
  rows[1].edit_begin = 1;
  rows[1].edit_end = 2;
  rows[2].allowed_end = 2;
  for (int i = 0; i < 3; ++i) {  // the scratch is there from the second time on
    d.sampler->Sample({rows, edits, allowed, F32View(logits.data(), 3, kVocab)});
    EXPECT_TRUE(d.sampler->EndStep().ok());
    EXPECT_THAT(d.Await(), ElementsAre(0, 20, 33));
  }
}

// Two calls in one step, which grow from step to step, with the next step launched before the first
// is awaited: each gets its own.
TEST(CudaTokenSamplerTest, LogprobsComeWithTheStepThatAskedForThem) {
  Device d;
  const DeviceFloats first(*d.backend, Peaks({7, 9, 11})), second(*d.backend, Peaks({30, 31, 32}));
  const auto ask = [&](const DeviceFloats& logits, int32_t top) {
    const std::vector<LogprobsRow> sampled = {
        {.top = top, .logits_row = 2, .slot = 2},
        {.top = 0, .logits_row = 0, .slot = 0, .entry_begin = 1 + top}};
    const std::vector<LogprobsRow> given = {{.token = 5, .logits_row = 1}};
    d.sampler->Logprobs({sampled, F32View(logits.data(), 3, kVocab)});
    d.sampler->Logprobs({given, F32View(logits.data(), 3, kVocab)});
  };
  const auto expect = [&](int32_t slot2, int32_t slot0, size_t top) {
    ASSERT_EQ(d.logprobs.size(), 2u);
    ASSERT_EQ(d.logprobs[0].size(), 2 + top);
    EXPECT_EQ(d.logprobs[0][0].token, slot2);
    EXPECT_EQ(d.logprobs[0][0].rank, 1);
    EXPECT_EQ(d.logprobs[0][1 + top].token, slot0);
    ASSERT_EQ(d.logprobs[1].size(), 1u);
    EXPECT_EQ(d.logprobs[1][0].token, 5);
    EXPECT_EQ(d.logprobs[1][0].rank, 7);  // behind the peak and those before it
    EXPECT_EQ(d.logprobs[1][0].logit, 0.0f);
    EXPECT_NEAR(d.logprobs[1][0].logprob, -std::log(39 + std::exp(5.0)), 1e-6);
  };
  for (int32_t top = 1; top <= kVocab; top *= 3) {
    d.Sample(first, {0, 1, 2});
    ask(first, top);
    EXPECT_TRUE(d.sampler->EndStep().ok());
    d.Sample(second, {0, 1, 2});
    ask(second, top + 1);
    EXPECT_TRUE(d.sampler->EndStep().ok());
    EXPECT_THAT(d.Await(), ElementsAre(7, 9, 11));
    expect(11, 7, static_cast<size_t>(top));
    EXPECT_THAT(d.Await(), ElementsAre(30, 31, 32));
    expect(32, 30, static_cast<size_t>(top) + 1);
  }
  d.Sample(first, {0, 1, 2});
  EXPECT_TRUE(d.sampler->EndStep().ok());
  EXPECT_THAT(d.Await(), ElementsAre(7, 9, 11));
  EXPECT_TRUE(d.logprobs.empty());
}

TEST(CudaTokenSamplerTest, LeavesVocabulariesThatAreTooLargeToTheHost) {
  Device d;
  const auto sampler = d.backend->MakeTokenSampler({.num_slots = 1, .vocab = (1 << 18) + 1});
  ASSERT_TRUE(sampler.ok());
  EXPECT_EQ(*sampler, nullptr);
}

// Before each call the thread turns to another device.
TEST(CudaTokenSamplerTest, SamplesOnItsOwnDevice) {
  Device d;
  const DeviceFloats one(*d.backend, Peaks({7, 9, 11}));
  const auto turn_away = [] { emulated::MakeEmulatedRuntime({.devices = 2, .index = 1}); };
  turn_away();
  d.Sample(one, {0, 1, 2});
  turn_away();
  const std::vector<LogprobsRow> rows(1);
  d.sampler->Logprobs({rows, F32View(one.data(), 3, kVocab)});
  turn_away();
  EXPECT_TRUE(d.sampler->EndStep().ok());
  EXPECT_THAT(d.Await(), ElementsAre(7, 9, 11));
  EXPECT_EQ(d.logprobs.size(), 1u);
}

// Its operations fail, so the step has no tokens; the one before and the one after have theirs.
TEST(CudaTokenSamplerTest, AStepThatCouldNotBePutOnTheDeviceFailsAlone) {
  const auto card = std::make_shared<emulated::EmulatedCard>();
  Device d({.card = card});
  const DeviceFloats one(*d.backend, Peaks({7, 9, 11}));
  d.Sample(one, {0, 1, 2});
  EXPECT_TRUE(d.sampler->EndStep().ok());
  card->used_bytes += size_t{1} << 30;  // others take all there is
  std::vector<SamplingRow> rows(1);
  // More than there is memory for from the start.
  const std::vector<int32_t> allowed(4096, 3);
  rows[0].allowed_end = 1;
  d.sampler->Sample({rows, {}, allowed, F32View(one.data(), 1, kVocab)});
  const absl::Status status = d.sampler->EndStep();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("bytes of device memory, have 0 free on device 0"));
  card->used_bytes -= size_t{1} << 30;
  EXPECT_THAT(d.Await(), ElementsAre(7, 9, 11));
  d.sampler->Sample({rows, {}, allowed, F32View(one.data(), 1, kVocab)});
  EXPECT_TRUE(d.sampler->EndStep().ok());
  EXPECT_THAT(d.Await(), ElementsAre(3, 9, 11));
}

// Each launch of a step in turn: nothing that was not put on the device is taken for being there.
TEST(CudaTokenSamplerTest, AStepWithALaunchWithoutMemoryFailsAlone) {
  const std::vector<LogitEdit> edits = {{.token = 7, .banned = 1}};
  const std::vector<int32_t> allowed = {33, 34};
  std::vector<SamplingRow> rows(2);
  rows[1].logits_row = rows[1].slot = 1;
  rows[0].edit_end = 1;
  rows[1].allowed_end = 2;
  const std::vector<LogprobsRow> asked = {{.top = 1}};
  int64_t n = 0;
  for (bool refused = true; refused; ++n) {
    Device d({.failing_call = "Launch",
              .failing_call_index = n,
              .failing_code = absl::StatusCode::kResourceExhausted});
    const DeviceFloats logits(*d.backend, Peaks({7, 7}));
    const TensorView view = F32View(logits.data(), 2, kVocab);
    const auto put = [&] {
      d.sampler->Sample({rows, edits, allowed, view});
      d.sampler->Logprobs({asked, view});
      return d.sampler->EndStep();
    };
    const absl::Status status = put();
    refused = !status.ok();
    if (refused) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << n;
      EXPECT_THAT(status.message(), HasSubstr("injected refusal")) << n;
      EXPECT_EQ(put(), absl::OkStatus()) << n;
    }
    EXPECT_THAT(d.Await(), ElementsAre(0, 33, 0)) << n;
    EXPECT_EQ(d.logprobs.size(), 1u) << n;
    EXPECT_EQ(d.backend->Synchronize(), absl::OkStatus()) << n;
  }
  EXPECT_GT(n, 6);
}

TEST(CudaTokenSamplerTest, AnErrorOfTheDeviceIsInternalAndForGood) {
  // The first kernel brings the rows.
  Device d({.failing_call = "Kernel", .failing_call_index = 1});
  const DeviceFloats logits(*d.backend, Peaks({7}));
  d.Sample(logits, {0});
  EXPECT_TRUE(d.sampler->EndStep().ok());
  const auto tokens = d.sampler->AwaitStep();
  EXPECT_EQ(tokens.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(tokens.status().message(), HasSubstr("(emulated) failed: kernel SampleRows"));
  d.Sample(logits, {0});
  EXPECT_EQ(d.sampler->EndStep().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(d.backend->Synchronize().code(), absl::StatusCode::kInternal);
}

// With edits and allowed tokens for every slot.
TEST(CudaTokenSamplerTest, AStepNeedsNoMemoryThatIsNotThereFromTheStart) {
  const auto card = std::make_shared<emulated::EmulatedCard>();
  Device d({.card = card});
  const DeviceFloats logits(*d.backend, Peaks({7, 7, 7}));
  card->used_bytes += size_t{1} << 30;
  std::vector<SamplingRow> rows(3);
  std::vector<LogitEdit> edits;
  std::vector<int32_t> allowed;
  for (int32_t i = 0; i < 3; ++i) {
    rows[i].logits_row = rows[i].slot = i;
    rows[i].edit_begin = static_cast<int32_t>(edits.size());
    rows[i].allowed_begin = static_cast<int32_t>(allowed.size());
    for (int32_t token = 0; token < kVocab; ++token) {
      edits.push_back({.token = token, .banned = token == 7});
      allowed.push_back(token);
    }
    rows[i].edit_end = static_cast<int32_t>(edits.size());
    rows[i].allowed_end = static_cast<int32_t>(allowed.size());
  }
  d.sampler->Sample({rows, edits, allowed, F32View(logits.data(), 3, kVocab)});
  EXPECT_EQ(d.sampler->EndStep(), absl::OkStatus());
  EXPECT_THAT(d.Await(), ElementsAre(0, 0, 0));
  card->used_bytes -= size_t{1} << 30;
}

// Every call fails once: a status comes out of the step or of the wait, never a wrong token.
TEST(CudaTokenSamplerTest, AnyCallMayFail) {
  for (int64_t n = 0; n < 150; ++n) {
    auto made = CudaBackend::Create(
        emulated::MakeEmulatedRuntime({.failing_call = "", .failing_call_index = n}));
    if (!made.ok()) continue;
    auto sampler = (*made)->MakeTokenSampler({.num_slots = 1, .vocab = kVocab});
    auto buffer = (*made)->device().Allocate(kVocab * sizeof(float), false);
    if (!sampler.ok() || !buffer.ok()) continue;
    const std::vector<float> logits = Peaks({9});
    if (!(*made)
             ->device()
             .CopyFromHost(buffer->data(), reinterpret_cast<const std::byte*>(logits.data()),
                           kVocab * sizeof(float))
             .ok()) {
      continue;
    }
    const std::vector<SamplingRow> rows(1);
    for (int step = 0; step < 3; ++step) {
      const TensorView view = F32View(reinterpret_cast<float*>(buffer->data()), 1, kVocab);
      (*sampler)->Sample({rows, {}, {}, view});
      const std::vector<LogprobsRow> asked = {{.top = 1 << step}};
      (*sampler)->Logprobs({asked, view});
      if (!(*sampler)->EndStep().ok()) continue;
      const auto tokens = (*sampler)->AwaitStep();
      if (tokens.ok()) {
        EXPECT_EQ(tokens->newest[0], 9) << n;
        EXPECT_EQ(tokens->logprobs.size(), 1u) << n;
        EXPECT_EQ(tokens->logprobs[0][0].token, 9) << n;
      }
    }
  }
}

}  // namespace
}  // namespace refrain::kernels::cuda
