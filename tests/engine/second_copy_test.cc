// Whether weights are kept a second time: PlanSecondCopy, and what loading a model makes of it.

#include "engine/second_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/create_engine.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using kernels::ComputeDType;
using kernels::DType;
using refrain::testing::TemporaryDirectory;
using refrain::testing::WriteTinyGguf;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Of the two layers: q, k, v, output, gate, up and down.
constexpr size_t kLayerElements = size_t{2} * 256 * (256 + 128 + 128 + 256 + 3 * 512);
constexpr size_t kCopyBytes = 2 * kLayerElements;
constexpr size_t kPlenty = size_t{1} << 40;

class SecondCopyTest : public ::testing::Test {
 protected:
  static kernels::BackendInfo Backend() {
    kernels::BackendInfo info;
    info.name = "some";
    info.isa = "level";
    info.second_copies = {DType::kQ8_0};
    return info;
  }
  SecondCopyPlan Plan(SecondCopyQuestion question, DType dtype = DType::kQ8_0) {
    auto source = WeightSource::Open(*WriteTinyGguf({.matrix_dtype = dtype}, directory_.path()));
    EXPECT_TRUE(source.ok()) << source.status();
    return PlanSecondCopy(**source, backend_, question);
  }

  TemporaryDirectory directory_;
  kernels::BackendInfo backend_ = Backend();
};

TEST_F(SecondCopyTest, AutoTakesATenthOfTheMemoryAtMost) {
  SecondCopyQuestion question = {.free_bytes = 10 * kCopyBytes};
  EXPECT_EQ(Plan(question).bytes, kCopyBytes);
  question.free_bytes -= 1;
  EXPECT_EQ(Plan(question).bytes, 0u);
  EXPECT_EQ(Plan(question).warning, "");
}

TEST_F(SecondCopyTest, WeightsAndTheCacheThatWasAskedForComeFirst) {
  for (const SecondCopyOption wanted : {SecondCopyOption::kAuto, SecondCopyOption::kOn}) {
    SecondCopyQuestion question = {.wanted = wanted,
                                   .free_bytes = 20 * kCopyBytes,
                                   .weight_bytes = 4 * kCopyBytes,
                                   .cache_bytes = 15 * kCopyBytes};
    EXPECT_EQ(Plan(question).bytes, kCopyBytes);
    question.cache_bytes += 1;
    EXPECT_EQ(Plan(question).bytes, 0u);
    EXPECT_EQ(!Plan(question).warning.empty(), wanted == SecondCopyOption::kOn);
    question.cache_bytes = 0;
    question.weight_bytes = 19 * kCopyBytes + 1;
    EXPECT_EQ(Plan(question).bytes, 0u);
    question.weight_bytes = 21 * kCopyBytes;
    EXPECT_EQ(Plan(question).bytes, 0u);
  }
}

TEST_F(SecondCopyTest, OnTakesWhatItNeedsAndOffNothing) {
  SecondCopyQuestion question = {.wanted = SecondCopyOption::kOn, .free_bytes = kCopyBytes};
  EXPECT_EQ(Plan(question).bytes, kCopyBytes);
  EXPECT_EQ(Plan(question).warning, "");
  question = {.wanted = SecondCopyOption::kOff, .free_bytes = kPlenty};
  EXPECT_EQ(Plan(question).bytes, 0u);
}

// A back end may know of one that nobody has timed.
TEST_F(SecondCopyTest, AutoMakesNoneThatWasNotMeasured) {
  backend_.second_copy_measured = false;
  EXPECT_EQ(Plan({.free_bytes = kPlenty}).bytes, 0u);
  EXPECT_EQ(Plan({.wanted = SecondCopyOption::kOn, .free_bytes = kPlenty}).bytes, kCopyBytes);
}

TEST_F(SecondCopyTest, SaysWhyThereIsNoneThatWasAskedFor) {
  const SecondCopyQuestion enough = {.free_bytes = kPlenty};
  const auto expect = [&](SecondCopyQuestion question, DType dtype, const std::string& why) {
    EXPECT_EQ(Plan(question, dtype).warning, "") << "not asked for";
    question.wanted = SecondCopyOption::kOn;
    EXPECT_EQ(Plan(question, dtype).bytes, 0u);
    EXPECT_THAT(Plan(question, dtype).warning,
                AllOf(HasSubstr("model.second_copy = on has no effect"), HasSubstr(why)));
  };
  expect(enough, DType::kQ4_0,
         "none of the model's weights has a second form that is faster on some level");
  SecondCopyQuestion other = enough;
  other.reproducible = true;
  expect(other, DType::kQ8_0, "engine.reproducible");
  for (const ComputeDType compute :
       {ComputeDType::kF32, ComputeDType::kBF16, ComputeDType::kInt8}) {
    other = enough;
    other.compute = compute;
    expect(other, DType::kQ8_0, "backend.compute_dtype");
  }
  backend_.reads_results_in_place = false;  // a device, for which int8 means auto
  other.compute = ComputeDType::kInt8;
  EXPECT_EQ(Plan(other).bytes, kCopyBytes);
}

TEST_F(SecondCopyTest, TheEmbeddingIsNoPartOfIt) {
  auto source = WeightSource::Open(*WriteTinyGguf(
      {.matrix_dtype = DType::kQ4_0, .embedding_dtype = DType::kQ8_0}, directory_.path()));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(
      PlanSecondCopy(**source, backend_, {.wanted = SecondCopyOption::kOn, .free_bytes = kPlenty})
          .bytes,
      0u);
}

// The models below are of a type of which plain C++ has a second form.
class LoadWithSecondCopyTest : public ::testing::Test {
 protected:
  absl::StatusOr<EngineParts> Load(SecondCopyOption wanted, bool reproducible = false) {
    EngineOptions options;
    options.model.path = *WriteTinyGguf({.matrix_dtype = DType::kQ4_1}, directory_.path());
    options.model.second_copy = wanted;
    options.backend.kind = "cpu";
    options.backend.isa = "portable";
    options.kv_cache.memory_bytes = 4 << 20;
    options.reproducible = reproducible;
    return MakeEngineParts(options);
  }

  TemporaryDirectory directory_;
};

int MibPacked(const EngineParts& parts) {
  const std::string& text = parts.model.description;
  const size_t end = text.find(" MiB packed");
  EXPECT_NE(end, std::string::npos) << text;
  return std::stoi(text.substr(text.rfind(' ', end - 1) + 1));
}

TEST_F(LoadWithSecondCopyTest, TheDescriptionTellsOfIt) {
  const std::string mib = std::to_string(kCopyBytes >> 20);
  const auto without = Load(SecondCopyOption::kOff);
  ASSERT_TRUE(without.ok()) << without.status();
  for (const SecondCopyOption wanted : {SecondCopyOption::kAuto, SecondCopyOption::kOn}) {
    const auto parts = Load(wanted);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_THAT(parts->model.description, HasSubstr("(" + mib + " of them a second copy in f16)"));
    EXPECT_THAT(parts->model.warning, Not(HasSubstr("second_copy")));
    EXPECT_NEAR(MibPacked(*parts), MibPacked(*without) + (kCopyBytes >> 20), 1);
  }
  EXPECT_THAT(without->model.description, Not(HasSubstr("second copy")));
}

TEST_F(LoadWithSecondCopyTest, AWarningTellsThatItHasNoEffect) {
  const auto parts = Load(SecondCopyOption::kOn, /*reproducible=*/true);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(parts->model.warning, HasSubstr("model.second_copy = on has no effect"));
  EXPECT_THAT(parts->model.description, Not(HasSubstr("second copy")));
}

}  // namespace
}  // namespace refrain::engine
