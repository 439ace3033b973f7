#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/little_room.h"

namespace refrain::kernels::cpu {
namespace {

absl::Status Wrong(Isa) { return absl::InternalError("attention: 1 where it should be 2"); }

TEST(CpuBackendTest, ComputesWithTheLevelThatPassed) {
  const auto passes = [](Isa isa) { return isa == Isa::kAvx2 ? absl::OkStatus() : Wrong(isa); };
  if (DetectIsa() < Isa::kAvx2) GTEST_SKIP() << "this machine has no AVX2";
  const auto backend = CpuBackend::Create({.threads = 1}, {Isa::kAvx512, "GenuineIntel"}, passes);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->info().isa, "avx2");
  EXPECT_EQ((*backend)->info().warning,
            "level avx512 computes wrong results on this machine and is not used (attention: 1 "
            "where it should be 2)");
}

TEST(CpuBackendTest, ComputesPortablyWhereEveryLevelIsWrong) {
  const auto backend = CpuBackend::Create({.threads = 1}, {Isa::kAmx, "GenuineIntel"}, Wrong);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->info().isa, "portable");
}

TEST(CpuBackendTest, RefusesALevelByNameThatIsWrong) {
  const auto backend =
      CpuBackend::Create({.threads = 1, .isa = "avx2"}, {Isa::kAvx512, "GenuineIntel"}, Wrong);
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(backend.status().message()).find("level avx2 computes wrong"),
            std::string::npos)
      << backend.status();
}

TEST(CpuBackendTest, RefusesNegativeThreads) {
  const absl::Status status = CpuBackend::Create({.threads = -1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "backend.threads is -1; it must be 0 or more");
}

#ifdef REFRAIN_TESTS_CAN_LIMIT_ADDRESSES
TEST(CpuBackendLimits, WarnsWhereTheSystemLetsFewerThreadsRun) {
  const auto with_little_room = [] {
    ::refrain::testing::LeaveLittleRoom();
    const auto backend = CpuBackend::Create({.threads = 100}, {Isa::kAvx2, "GenuineIntel"}, Wrong);
    if (!backend.ok()) std::exit(3);
    const BackendInfo& info = (*backend)->info();
    std::fprintf(stderr, "%d threads; %s\n", info.threads, info.warning.c_str());
    const std::string want =
        "; backend.threads is 100, the system lets " + std::to_string(info.threads) + " run";
    const size_t at = info.warning.find(want);
    const bool said = at != std::string::npos && at + want.size() == info.warning.size();
    std::exit(said && info.threads < 100 ? 0 : 1);
  };
  EXPECT_EXIT(with_little_room(), ::testing::ExitedWithCode(0), "level avx2 computes wrong");
}
#endif

}  // namespace
}  // namespace refrain::kernels::cpu
