#include "kernels/cpu/isa.h"

#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace refrain::kernels::cpu {
namespace {

// The flags that the operating system shows for the first processor.
bool KernelShows(const std::string& flag) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == flag) return true;
    }
    return false;
  }
  return false;
}

TEST(IsaTest, DetectsWhatTheKernelShows) {
  const Isa isa = DetectIsa();
  EXPECT_EQ(isa >= Isa::kAvx2, KernelShows("avx2") && KernelShows("fma") && KernelShows("f16c"));
  EXPECT_EQ(isa >= Isa::kAvx512, KernelShows("avx512f") && KernelShows("avx512bw") &&
                                     KernelShows("avx512dq") && KernelShows("avx512vl"));
  EXPECT_TRUE(HasVexVnni() || !KernelShows("avx_vnni"));  // Linux before 5.12 does not show it
  if (isa == Isa::kAvx2 || isa == Isa::kAvxVnni) {
    EXPECT_EQ(isa == Isa::kAvxVnni, HasVexVnni());
  }
  if (isa >= Isa::kAvx512) {
    EXPECT_EQ(isa >= Isa::kAvx512Vnni, KernelShows("avx512_vnni"));
  }
  if (isa >= Isa::kAvx512Vnni) {
    EXPECT_EQ(isa >= Isa::kAvx512Bf16, KernelShows("avx512_bf16"));
  }
  EXPECT_TRUE(HasAvx512Fp16() || !KernelShows("avx512_fp16"));  // nor does it this before 5.11
  EXPECT_TRUE(!HasAvx512Fp16() || isa >= Isa::kAvx512);
  if (isa == Isa::kAmx) {
    EXPECT_TRUE(KernelShows("amx_tile"));
  }
}

TEST(IsaTest, SupportsEveryLevelUpToTheBest) {
  const std::vector<Isa> isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kPortable);
  EXPECT_EQ(isas.back(), DetectIsa());
}

TEST(IsaTest, OnlyTheDotProductsOfAvxVnniAreNotPartOfAllLevelsAbove) {
  EXPECT_TRUE(Runs(Isa::kAvxVnni, Isa::kAvxVnni));
  EXPECT_FALSE(Runs(Isa::kAvxVnni, Isa::kAvx2));
  EXPECT_FALSE(Runs(Isa::kAvxVnni, Isa::kAvx512));  // Skylake
  EXPECT_TRUE(Runs(Isa::kAvxVnni, Isa::kAvx512Vnni));
  EXPECT_TRUE(Runs(Isa::kAvxVnni, Isa::kAmx));
  EXPECT_TRUE(Runs(Isa::kAvx2, Isa::kAvx512));
  EXPECT_FALSE(Runs(Isa::kAvx512, Isa::kAvxVnni));
}

TEST(IsaTest, ResolvesNames) {
  EXPECT_EQ(*ResolveIsa("portable"), Isa::kPortable);
  EXPECT_EQ(*ResolveIsa(Name(DetectIsa())), DetectIsa());
}

TEST(IsaTest, TakesTheFastestLevelByItself) {
  for (const Isa isa :
       {Isa::kPortable, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAmx}) {
    EXPECT_EQ(FastestIsa(isa, "GenuineIntel"), isa);
    EXPECT_EQ(FastestIsa(isa, "AuthenticAMD"), isa);
  }
  EXPECT_EQ(FastestIsa(Isa::kAvx512Bf16, "AuthenticAMD"), Isa::kAvx512Bf16);
  EXPECT_EQ(FastestIsa(Isa::kAvx512Bf16, "GenuineIntel"), Isa::kAvx512Vnni);
}

// Where CPUID says who made the processor.
TEST(IsaTest, KnowsTheVendor) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(cpuinfo), {}};
  for (const char* vendor : {"GenuineIntel", "AuthenticAMD"}) {
    if (text.find(vendor) == std::string::npos) continue;
    EXPECT_EQ(*ResolveIsa("auto"), FastestIsa(DetectIsa(), vendor));
  }
}

TEST(IsaTest, KnowsTheFamilyAsTheKernelShowsIt) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("cpu family", 0) != 0) continue;
    EXPECT_EQ(ThisProcessor().family, std::stoi(line.substr(line.find(':') + 1)));
    return;
  }
  GTEST_SKIP() << "the kernel shows no family";
}

TEST(IsaTest, AsksTheFirstLevelCacheWhereItBringsInAsMuch) {
  const auto cache = [](const char* vendor, int family) {
    return NearestFastCache({Isa::kAvx512Bf16, vendor, family});
  };
  EXPECT_EQ(cache("AuthenticAMD", 0x19), CacheLevel::kSecond);  // Zen 3 and 4
  EXPECT_EQ(cache("AuthenticAMD", 0x1a), CacheLevel::kFirst);   // Zen 5
  EXPECT_EQ(cache("GenuineIntel", 6), CacheLevel::kSecond);
  EXPECT_EQ(cache("GenuineIntel", 0x1a), CacheLevel::kSecond);
  EXPECT_EQ(NearestFastCache({}), CacheLevel::kSecond);
}

TEST(IsaTest, NamesTheValidLevelsWhenAskedForAnother) {
  const absl::Status status = ResolveIsa("sse9").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("sse9"), std::string::npos);
  EXPECT_NE(std::string(status.message()).find("avx512_vnni"), std::string::npos);
}

TEST(IsaTest, RefusesALevelThatTheMachineLacks) {
  EXPECT_EQ(ResolveIsa("avx_vnni", {Isa::kAvx512, "GenuineIntel"}).status().message(),
            "backend.isa is \"avx_vnni\", but this machine's best level is \"avx512\"");
  if (DetectIsa() == Isa::kAmx) GTEST_SKIP() << "this machine has every level";
  EXPECT_EQ(ResolveIsa("amx").status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace refrain::kernels::cpu
