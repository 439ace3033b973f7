#include "kernels/cpu/level_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace refrain::kernels::cpu {
namespace {

// Checks that find the levels of `wrong` wrong, and what they were asked.
class Checks {
 public:
  explicit Checks(std::vector<Isa> wrong) : wrong_(std::move(wrong)) {}

  LevelChecker checker() {
    return [this](Isa isa) {
      asked.push_back(isa);
      const bool right = std::find(wrong_.begin(), wrong_.end(), isa) == wrong_.end();
      return right ? absl::OkStatus() : absl::InternalError("a product: 1 where it should be 2");
    };
  }

  std::vector<Isa> asked;

 private:
  std::vector<Isa> wrong_;
};

const std::vector<Isa> kAllLevels = {Isa::kPortable, Isa::kAvx2,       Isa::kAvxVnni,
                                     Isa::kAvx512,   Isa::kAvx512Vnni, Isa::kAvx512Bf16,
                                     Isa::kAmx};
const Processor kIntel{Isa::kAmx, "GenuineIntel"};
const Processor kAmd{Isa::kAvx512Bf16, "AuthenticAMD"};

TEST(LevelChoiceTest, TakesTheFastestLevelThatIsRight) {
  Checks checks({});
  const auto chosen = ChooseLevel("auto", kIntel, checks.checker());
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->isa, Isa::kAmx);
  EXPECT_EQ(chosen->warning, "");
  EXPECT_EQ(checks.asked, std::vector<Isa>{Isa::kAmx});
}

// Without tiles Intel's BF16 dot products are slower than what is a level below.
TEST(LevelChoiceTest, GoesDownToTheFastestOfTheRest) {
  Checks checks({Isa::kAmx});
  const auto chosen = ChooseLevel("auto", kIntel, checks.checker());
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->isa, Isa::kAvx512Vnni);
  EXPECT_EQ(chosen->warning,
            "level amx computes wrong results on this machine and is not used (a product: 1 where "
            "it should be 2)");
  EXPECT_EQ(checks.asked, (std::vector<Isa>{Isa::kAmx, Isa::kAvx512Vnni}));
}

TEST(LevelChoiceTest, GoesDownOneLevelWhereThatIsTheFastest) {
  Checks checks({Isa::kAmx});
  const auto chosen = ChooseLevel("auto", {Isa::kAmx, "AuthenticAMD"}, checks.checker());
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->isa, Isa::kAvx512Bf16);
}

TEST(LevelChoiceTest, WarnsOfEachLevelThatIsPassedOver) {
  Checks checks({Isa::kAvx512Bf16, Isa::kAvx512Vnni});
  const auto chosen = ChooseLevel("auto", kAmd, checks.checker());
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->isa, Isa::kAvx512);
  EXPECT_EQ(chosen->warning,
            "level avx512_bf16 computes wrong results on this machine and is not used (a product: "
            "1 where it should be 2); level avx512_vnni computes wrong results on this machine and "
            "is not used (a product: 1 where it should be 2)");
}

TEST(LevelChoiceTest, TakesThePortableLevelWhereAllAreWrong) {
  Checks checks(kAllLevels);
  const auto chosen = ChooseLevel("auto", kIntel, checks.checker());
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->isa, Isa::kPortable);
  EXPECT_EQ(checks.asked, (std::vector<Isa>{Isa::kAmx, Isa::kAvx512Vnni, Isa::kAvx512,
                                            Isa::kAvxVnni, Isa::kAvx2}));
  EXPECT_NE(chosen->warning.find("level avx2 computes wrong"), std::string::npos);
}

TEST(LevelChoiceTest, PassesOverALevelThatTheProcessorLacks) {
  Checks checks({Isa::kAvx512});
  const auto chosen = ChooseLevel("auto", {Isa::kAvx512, "GenuineIntel"}, checks.checker());
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->isa, Isa::kAvx2);
  EXPECT_EQ(checks.asked, (std::vector<Isa>{Isa::kAvx512, Isa::kAvx2}));
}

TEST(LevelChoiceTest, ALevelByNameIsTakenAsItIs) {
  Checks checks({});
  const auto chosen = ChooseLevel("avx512_bf16", kIntel, checks.checker());
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->isa, Isa::kAvx512Bf16);
  EXPECT_EQ(chosen->warning, "");
}

// Whether or not others would be right.
TEST(LevelChoiceTest, ALevelByNameThatIsWrongIsRefused) {
  for (const std::vector<Isa>& wrong : {std::vector<Isa>{Isa::kAmx}, kAllLevels}) {
    Checks checks(wrong);
    const absl::Status status = ChooseLevel("amx", kIntel, checks.checker()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(std::string(status.message()),
              "level amx computes wrong results on this machine and is not used (a product: 1 "
              "where it should be 2)");
    EXPECT_EQ(checks.asked, std::vector<Isa>{Isa::kAmx});
  }
}

TEST(LevelChoiceTest, ALevelByNameThatTheMachineLacksIsRefusedUnchecked) {
  Checks checks({});
  EXPECT_EQ(ChooseLevel("amx", kAmd, checks.checker()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ChooseLevel("sse9", kAmd, checks.checker()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(checks.asked.empty());
}

}  // namespace
}  // namespace refrain::kernels::cpu
