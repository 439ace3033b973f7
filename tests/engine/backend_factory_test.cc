#include "engine/backend_factory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/cuda_maker.h"
#include "tests/support/cuda_cases.h"
#include "tests/support/forwarding_backend.h"

namespace refrain::engine {
namespace {

using ::testing::HasSubstr;

CudaMaker Fails(const absl::Status& status) {
  return [status](const BackendOptions&) -> absl::StatusOr<std::unique_ptr<kernels::Backend>> {
    return status;
  };
}

const CudaMaker kEmulated =
    [](const BackendOptions&) -> absl::StatusOr<std::unique_ptr<kernels::Backend>> {
  return testing::MakeCudaBackend("cuda_emulated");
};

TEST(BackendFactoryTest, AutoTakesTheGpuWhereThereIsOne) {
  const auto chosen = ChooseBackend({.kind = "auto"}, true, kEmulated);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->backend->info().name, "cuda");
  EXPECT_EQ(chosen->note, "");
}

TEST(BackendFactoryTest, AutoFallsBackToTheCpuAndSaysWhy) {
  const auto chosen = ChooseBackend({.kind = "auto", .threads = 1}, true,
                                    Fails(absl::FailedPreconditionError("no CUDA device: old")));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->backend->info().name, "cpu");
  EXPECT_EQ(chosen->note, "CUDA is not used: no CUDA device: old");
}

TEST(BackendFactoryTest, WhereTheCpuCannotRunItEitherBothReasonsAreSaid) {
  const auto chosen = ChooseBackend({.kind = "auto", .isa = "sse9"}, true,
                                    Fails(absl::FailedPreconditionError("no CUDA device: old")));
  EXPECT_THAT(chosen.status().message(), HasSubstr("sse9"));
  EXPECT_THAT(chosen.status().message(), HasSubstr("; CUDA is not used: no CUDA device: old"));
}

// backend.isa of a card that is not there.
TEST(BackendFactoryTest, UnderAutoTheCpuTakesThePlaceOfAnyCard) {
  const BackendOptions options = {.kind = "auto", .threads = 1, .isa = "sm_80"};
  const auto no_card = Fails(absl::FailedPreconditionError("no CUDA device: old"));
  for (const bool build_has_cuda : {false, true}) {
    const auto chosen = ChooseBackend(options, build_has_cuda, no_card);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ(chosen->backend->info().name, "cpu");
  }
  const auto asked_for = ChooseBackend({.kind = "cpu", .isa = "sm_80"}, false, no_card);
  EXPECT_THAT(asked_for.status().message(), HasSubstr("sm_80"));
}

// A build without CUDA has nothing to say about it.
TEST(BackendFactoryTest, AutoOfABuildWithoutCudaIsTheCpu) {
  const auto chosen =
      ChooseBackend({.kind = "auto", .threads = 1}, false, Fails(absl::InternalError("called")));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->backend->info().name, "cpu");
  EXPECT_EQ(chosen->note, "");
}

TEST(BackendFactoryTest, CudaByNameDoesNotFallBack) {
  const auto chosen =
      ChooseBackend({.kind = "cuda"}, true, Fails(absl::FailedPreconditionError("no CUDA device")));
  EXPECT_EQ(chosen.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(chosen.status().message(), HasSubstr("backend.kind is \"cuda\""));
  EXPECT_THAT(chosen.status().message(), HasSubstr("no CUDA device"));
}

TEST(BackendFactoryTest, CudaByNameSaysWhatABuildWithoutItLacks) {
  if (BuildHasCuda()) GTEST_SKIP() << "built with --config=cuda";
  const absl::Status status = ChooseBackend({.kind = "cuda"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      std::string(status.message()),
      "backend.kind is \"cuda\", backend.device is 0: this build has no CUDA back end (it was "
      "not built with --config=cuda)");
}

// Seven of one: a mistake to be told, whatever the kind.
TEST(BackendFactoryTest, ADeviceThatIsNotThereIsAnError) {
  for (const char* kind : {"auto", "cuda"}) {
    const auto chosen =
        ChooseBackend({.kind = kind, .device = 7}, true,
                      Fails(absl::NotFoundError("there is no CUDA device 7; devices: 0 (card)")));
    EXPECT_EQ(chosen.status().code(), absl::StatusCode::kNotFound) << kind;
    EXPECT_THAT(chosen.status().message(), HasSubstr("backend.device is 7"));
    EXPECT_THAT(chosen.status().message(), HasSubstr("devices: 0 (card)"));
  }
}

TEST(BackendFactoryTest, AnUnknownKindNamesTheKnownOnes) {
  EXPECT_THAT(ChooseBackend({.kind = "tpu"}).status().message(),
              HasSubstr("valid: auto, cpu, cuda, reference"));
}

TEST(BackendFactoryTest, KnowsTheTypesOfTheKvCacheByName) {
  const auto backend = MakeBackend({.kind = "cpu", .threads = 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const ModelConfig model;
  EXPECT_EQ(*ParseKvDType("auto", **backend, model), (*backend)->info().preferred_kv);
  EXPECT_EQ(*ParseKvDType("bf16", **backend, model), kernels::DType::kBF16);
  EXPECT_EQ(*ParseKvDType("fp8_e4m3", **backend, model), kernels::DType::kF8E4M3);
  EXPECT_EQ(*ParseKvDType("fp8", **backend, model), kernels::DType::kF8E4M3);
  EXPECT_THAT(ParseKvDType("fp8_e5m2", **backend, model).status().message(),
              HasSubstr("kv_cache.dtype is \"fp8_e5m2\"; valid: auto, f32, f16, bf16, fp8_e4m3"));
}

// Prefers bf16, as some processors do.
class PrefersBf16 final : public testing::ForwardingBackend {
 public:
  PrefersBf16() : ForwardingBackend(*MakeBackend({.kind = "reference"})) {
    info_ = ForwardingBackend::info();
    info_.preferred_kv = kernels::DType::kBF16;
  }
  const kernels::BackendInfo& info() const override { return info_; }

 private:
  kernels::BackendInfo info_;
};

TEST(BackendFactoryTest, KeysWithBiasesAreNotKeptInBf16Unasked) {
  const PrefersBf16 backend;
  ModelConfig biased;
  biased.qkv_bias = true;
  EXPECT_EQ(*ParseKvDType("auto", backend, ModelConfig()), kernels::DType::kBF16);
  EXPECT_EQ(*ParseKvDType("auto", backend, biased), kernels::DType::kF16);
  EXPECT_EQ(*ParseKvDType("bf16", backend, biased), kernels::DType::kBF16);
  EXPECT_EQ(*ParseKvDType("auto", **MakeBackend({.kind = "reference"}), biased),
            kernels::DType::kF32);
}

}  // namespace
}  // namespace refrain::engine
