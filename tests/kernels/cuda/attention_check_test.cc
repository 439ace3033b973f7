// What a CUDA back end makes of its attention kernels before they are used: on the emulated device,
// whose kernels are right, and with kernels that are wrong in one way each.

#include "kernels/cuda/attention_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/cuda/attention_on_device.h"

namespace refrain::kernels::cuda {
namespace {

using emulated::MakeEmulatedRuntime;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kOneHeadDim[] = {64};

// Changes what the tried kernel is told; false leaves it out.
using Spoil = bool (*)(ChunkAttentionArgs& args, std::vector<SlotStep>& steps);

bool NothingWritten(ChunkAttentionArgs&, std::vector<SlotStep>&) { return false; }

// The check, of one head_dim, with a kernel whose launches `spoil` changes; the others are taken
// for right.
AttentionCheck With(AttentionKernel faulty, Spoil spoil) {
  return [=](AttentionKernel kernel, const AttentionDevice& properties, Device& device,
             const AttendFn& attend) -> absl::StatusOr<std::string> {
    if (kernel != faulty) return "";
    const auto spoilt = [&](AttentionKernel by, int num_multiprocessors,
                            const ChunkAttentionArgs& args) {
      if (by != faulty) return attend(by, num_multiprocessors, args);
      ChunkAttentionArgs changed = args;
      std::vector<SlotStep> steps(args.steps.begin(), args.steps.end());
      const bool launched = spoil(changed, steps);
      changed.steps = steps;
      return launched ? attend(by, num_multiprocessors, changed) : absl::OkStatus();
    };
    return FindAttentionFaultIn(kOneHeadDim, kernel, properties, device, spoilt);
  };
}

std::unique_ptr<CudaBackend> Make(const CudaOptions& options, int major = 9) {
  auto backend = CudaBackend::Create(MakeEmulatedRuntime({.major = major}), options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

// Bits of a shape that every kernel has; reproducible, that all but Hopper's have.
std::vector<float> Attend(CudaBackend& backend, bool reproducible = false) {
  AttentionScenario scenario = SharedRuns({4, 2, 64, 64, DType::kF16});
  AttentionOnDevice attention(backend, scenario);
  attention.args.reproducible = reproducible;
  backend.ChunkAttention(attention.args);
  return attention.out.Read();
}

std::vector<float> AttendBy(AttentionKernel kernel, bool reproducible = false) {
  return Attend(*Make({.attention = kernel}), reproducible);
}

TEST(AttentionCheckTest, KernelsThatAreRightAreUsed) {
  const auto backend = Make({.check_attention = &FindAttentionFault});
  EXPECT_EQ(backend->info().warning, "");
  EXPECT_EQ(Attend(*backend), AttendBy(AttentionKernel::kHopper));
}

TEST(AttentionCheckTest, OfAnOlderDeviceTheKernelsThatItHasAreTried) {
  const auto backend =
      Make({.check_attention = With(AttentionKernel::kMma, &NothingWritten)}, /*major=*/8);
  EXPECT_THAT(backend->info().warning, StartsWith("attention of sm_80 computes wrong results"));
  EXPECT_EQ(Attend(*backend), AttendBy(AttentionKernel::kGeneric));
}

// What Hopper's kernel does not do is another's, which need not be right because that one is.
TEST(AttentionCheckTest, EveryKernelThatMayBeUsedIsTried) {
  const Spoil when_reproducible = [](ChunkAttentionArgs& args, std::vector<SlotStep>&) {
    return !args.reproducible;
  };
  const auto backend = Make({.check_attention = With(AttentionKernel::kMma, when_reproducible)});
  EXPECT_THAT(backend->info().warning, AllOf(StartsWith("attention of sm_80 computes wrong"),
                                             HasSubstr("head_dim 64, f16, reproducible: off by")));
  EXPECT_EQ(Attend(*backend), AttendBy(AttentionKernel::kHopper));
  EXPECT_EQ(Attend(*backend, true), AttendBy(AttentionKernel::kGeneric, true));
}

struct Fault {
  const char* name;
  Spoil spoil;
  const char* told;
};

class FaultyAttention : public testing::TestWithParam<Fault> {};

TEST_P(FaultyAttention, IsToldAndTheNextKernelUsed) {
  const auto backend = Make({.check_attention = With(AttentionKernel::kHopper, GetParam().spoil)});
  EXPECT_THAT(backend->info().warning,
              AllOf(StartsWith("attention of sm_90a computes wrong results"),
                    HasSubstr("head_dim 64, f16"), HasSubstr(GetParam().told)));
  EXPECT_EQ(Attend(*backend), AttendBy(AttentionKernel::kMma));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyAttention,
    testing::Values(Fault{"NothingWritten", &NothingWritten, "off by nan"},
                    Fault{"AKeyTooFew",
                          [](ChunkAttentionArgs&, std::vector<SlotStep>& steps) {
                            --steps[1].key_end;
                            return true;
                          },
                          "off by 0."},
                    Fault{"RowsExchanged",
                          [](ChunkAttentionArgs&, std::vector<SlotStep>& steps) {
                            std::swap(steps.front().row_begin, steps.back().row_begin);
                            return true;
                          },
                          "off by 2."},
                    Fault{"AScaleOffByAThirtieth",
                          [](ChunkAttentionArgs& args, std::vector<SlotStep>&) {
                            args.scale *= 1.03f;
                            return true;
                          },
                          "off by 0.0"},
                    Fault{"AWindowTooWide",
                          [](ChunkAttentionArgs& args, std::vector<SlotStep>&) {
                            if (args.window_tokens > 0) ++args.window_tokens;
                            return true;
                          },
                          "sliding window: off by 0."}),
    [](const auto& info) { return info.param.name; });

TEST(AttentionCheckTest, WhereNoFastKernelIsRightThePlainOneIsUsed) {
  const AttentionCheck nothing_is_right = [](AttentionKernel, const AttentionDevice&, Device&,
                                             const AttendFn&) { return "all wrong"; };
  const auto backend = Make({.check_attention = nothing_is_right});
  EXPECT_THAT(
      backend->info().warning,
      AllOf(StartsWith("attention of sm_90a computes wrong results on this device (all wrong)"),
            HasSubstr("; attention of sm_80 computes wrong results")));
  EXPECT_EQ(Attend(*backend), AttendBy(AttentionKernel::kGeneric));
}

// backend.isa = sm_80: the kernel that is left out need not be right.
TEST(AttentionCheckTest, AKernelThatIsNotAskedForIsNotTried) {
  const auto backend = Make({.attention = AttentionKernel::kMma,
                             .check_attention = With(AttentionKernel::kHopper, &NothingWritten)});
  EXPECT_EQ(backend->info().warning, "");
  EXPECT_EQ(Attend(*backend), AttendBy(AttentionKernel::kMma));
}

TEST(AttentionCheckTest, AKernelThatIsNotAskedForDoesNotServeForOneThatIsWrong) {
  const auto backend = Make({.attention = AttentionKernel::kMma,
                             .check_attention = With(AttentionKernel::kMma, &NothingWritten)});
  EXPECT_THAT(backend->info().warning, StartsWith("attention of sm_80 computes wrong results"));
  EXPECT_EQ(Attend(*backend), AttendBy(AttentionKernel::kGeneric));
}

// Another back end may serve: backend.kind = auto goes on to the CPU.
TEST(AttentionCheckTest, ADeviceWithoutRoomForItIsNoErrorOfTheDevice) {
  const auto backend = CudaBackend::Create(MakeEmulatedRuntime({.memory_bytes = 400000}),
                                           {.check_attention = &FindAttentionFault});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(backend.status().message()),
              AllOf(StartsWith("CUDA device 0 (emulated) has no room for what a back end needs: "),
                    HasSubstr("bytes of device memory, have")));
}

// No room for its registers or its shared memory: the device is as good as before.
TEST(AttentionCheckTest, AKernelWhoseLaunchIsRefusedIsNotUsed) {
  const Spoil nothing = [](ChunkAttentionArgs&, std::vector<SlotStep>&) { return true; };
  std::unique_ptr<CudaBackend> backend;
  for (int64_t launch = 0; launch < 10 && backend == nullptr; ++launch) {
    auto made = CudaBackend::Create(
        MakeEmulatedRuntime({.failing_call = "Launch", .failing_call_index = launch}),
        {.check_attention = With(AttentionKernel::kHopper, nothing)});
    if (made.ok()) {
      backend = *std::move(made);
    } else {  // the plain kernel's: without that one there is no attention
      EXPECT_THAT(made.status().message(), HasSubstr("injected refusal"));
    }
  }
  ASSERT_NE(backend, nullptr);
  EXPECT_THAT(backend->info().warning,
              AllOf(StartsWith("attention of sm_90a does not start on this device (launch of "),
                    HasSubstr("injected refusal")));
  EXPECT_EQ(Attend(*backend), AttendBy(AttentionKernel::kMma));
}

TEST(AttentionCheckTest, ADeviceThatFailsIsAnErrorThatSaysWhatWasTried) {
  const auto backend =
      CudaBackend::Create(MakeEmulatedRuntime({.failing_call = "Kernel", .failing_call_index = 1}),
                          {.check_attention = &FindAttentionFault});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(backend.status().message(),
              HasSubstr("failed while its attention of sm_90a was tried: "));
}

}  // namespace
}  // namespace refrain::kernels::cuda
