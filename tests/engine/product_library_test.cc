// A device's library of products under an engine: it computes where it may, is warned of where it
// is wrong, and leaves reproducible engines alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "tests/engine/device_engine.h"

namespace refrain::engine {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
namespace device = kernels::cuda;
using device::emulated::EmulatedLibrary;

class ProductLibraryTest : public ::testing::Test {
 protected:
  EngineOptions Options() const {
    EngineOptions options = SmallEngineOptions(model_);
    options.backend.kind = "cuda";
    options.backend.compute_dtype = "bf16";
    options.reproducible = false;
    return options;
  }
  BackendChooser Chooser(EmulatedLibrary library = {}) {
    library.present = true;
    library.products = products_;
    return [this, library](const BackendOptions& options) -> absl::StatusOr<ChosenBackend> {
      asked_ = options;
      device::CudaOptions cuda;
      if (options.product_library) {
        cuda.library =
            device::LibraryProducts::Options{.rows = {8, 32}, .worth_it = 1e9f, .rounds = 1};
      }
      auto made = device::CudaBackend::Create(
          device::emulated::MakeEmulatedRuntime({.library = library}), cuda);
      if (!made.ok()) return made.status();
      ChosenBackend chosen;
      chosen.backend = *std::move(made);
      return chosen;
    };
  }

  const testing::TemporaryDirectory folder_;
  const std::string model_ = WriteSmallModel(folder_);
  const std::shared_ptr<int64_t> products_ = std::make_shared<int64_t>(0);
  BackendOptions asked_;
};

const std::vector<int32_t> kPrompt = {3, 99, 41, 7, 250, 12, 18, 200, 5, 77, 31};

TEST_F(ProductLibraryTest, TokensAreThoseOfOurKernels) {
  const Request request = RequestFor(kPrompt, 12);
  Output outputs[2];
  for (const bool library : {false, true}) {
    EngineOptions options = Options();
    options.backend.product_library = library;
    const DeviceEngine served = Serve(options, Chooser());
    const int64_t tried = *products_;
    outputs[library] = served.Run(request);
    ASSERT_TRUE(outputs[library].status.ok()) << outputs[library].status;
    ASSERT_EQ(outputs[library].tokens.size(), 12u);
    EXPECT_EQ(*products_ > tried, library);
  }
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(outputs[1].tokens[i].token, outputs[0].tokens[i].token) << i;
  }
}

TEST_F(ProductLibraryTest, TheModelIsDescribedWithIt) {
  const auto parts = MakeEngineParts(Options(), Chooser());
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(parts->model.description,
              ContainsRegex("products by own kernels, and emulated library 1.0 where it is faster "
                            "\\([1-9][0-9]* of [1-9][0-9]* sizes tried\\), "));
  EXPECT_EQ(parts->model.warning, "");
}

TEST_F(ProductLibraryTest, AWrongLibraryIsWarnedOf) {
  const auto parts =
      MakeEngineParts(Options(), Chooser({.fault = EmulatedLibrary::Fault::kWrongSum}));
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(parts->model.warning,
              HasSubstr("products are not the library's on this device: emulated library 1.0 "
                        "computes wrong results: bf16 weight of "));
  EXPECT_THAT(parts->model.description, HasSubstr("products by own kernels, "));
}

TEST_F(ProductLibraryTest, ReproducibleEnginesDoWithoutIt) {
  EngineOptions options = Options();
  options.reproducible = true;
  ASSERT_TRUE(MakeEngineParts(options, Chooser()).ok());
  EXPECT_FALSE(asked_.product_library);
  EXPECT_EQ(*products_, 0);
}

}  // namespace
}  // namespace refrain::engine
