// The CUDA back end's maker of builds with --config=cuda, over the emulated device.

#include "engine/cuda_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace refrain::engine {
namespace {

using ::testing::HasSubstr;

// Seven of one.
TEST(CudaMakerTest, PassesOnWhichDeviceIsAskedFor) {
  EXPECT_TRUE(BuildHasCuda());
  const auto backend = MakeCudaBackend({.kind = "cuda", .device = 7});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(backend.status().message(),
              HasSubstr("there is no CUDA device 7; devices: 0 (emulated)"));
}

}  // namespace
}  // namespace refrain::engine
