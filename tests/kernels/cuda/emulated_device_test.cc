// The emulated device itself: threads that meet, and the errors that it finds in kernels.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/cuda/instructions.h"

namespace refrain::kernels::cuda {
namespace {

using testing::HasSubstr;

class EmulatedDevice : public testing::Test {
 protected:
  template <class... Params, class... Args>
  absl::Status Run(const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
    Launch(*stream_, shape, kernel, std::forward<Args>(args)...);
    return runtime_->Synchronize(*stream_);
  }

  std::unique_ptr<Runtime> runtime_ = emulated::MakeEmulatedRuntime({});
  std::unique_ptr<Stream> stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
};

__global__ void WriteIndexes(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1 + block * 1000 + thread;
}

TEST_F(EmulatedDevice, RunsEveryThreadOfEveryBlockOnce) {
  std::vector<unsigned> out(2 * 3 * 2 * 5 * 7 * 2);
  ASSERT_TRUE(Run({{2, 3, 2}, {5, 7, 2}, 0, "WriteIndexes"}, WriteIndexes, out.data()).ok());
  for (unsigned i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 1 + i / 70 * 1000 + i % 70);
}

// Each thread reads what the thread before it wrote, round after round.
__global__ void PassAround(int* out, int rounds) {
  int* const values = SharedMemory<int>();
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  for (int i = 0; i < rounds; ++i) {
    __syncthreads();
    const int next = values[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
    values[threadIdx.x] = next;
  }
  out[threadIdx.x] = values[threadIdx.x];
}

TEST_F(EmulatedDevice, BarriersOrderSharedMemory) {
  std::vector<int> out(96);
  ASSERT_TRUE(Run({1, 96, 96 * 4, "PassAround"}, PassAround, out.data(), 7).ok());
  for (int i = 0; i < 96; ++i) EXPECT_EQ(out[i], (i + 7) % 96);
}

__global__ void Shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int* const own = out + 8 * threadIdx.x;
  own[0] = __shfl_sync(~0u, lane * 10, (lane + 3) % 32);
  own[1] = __shfl_xor_sync(~0u, lane, 5);
  own[2] = __shfl_down_sync(~0u, lane, 4);
  own[3] = __shfl_up_sync(~0u, lane, 4);
  own[4] = __shfl_xor_sync(~0u, lane, 2, 8) + 100 * __shfl_sync(~0u, lane, 1, 8);
  own[5] = static_cast<int>(__ballot_sync(~0u, lane % 3 == 0));
  own[6] = __any_sync(~0u, lane == 40) * 2 + __all_sync(~0u, lane < 32);
  own[7] = lane < 16 ? __shfl_xor_sync(0xffffu, lane, 1) : -1;
}

TEST_F(EmulatedDevice, ShufflesMoveValuesAsTheManualSays) {
  std::vector<int> out(64 * 8);
  ASSERT_TRUE(Run({1, 64, 0, "Shuffles"}, Shuffles, out.data()).ok());
  unsigned thirds = 0;
  for (int lane = 0; lane < 32; lane += 3) thirds |= 1u << lane;
  for (int i = 0; i < 64; ++i) {
    const int lane = i % 32;
    const int* own = out.data() + 8 * i;
    EXPECT_EQ(own[0], (lane + 3) % 32 * 10);
    EXPECT_EQ(own[1], lane ^ 5);
    EXPECT_EQ(own[2], lane + 4 < 32 ? lane + 4 : lane);
    EXPECT_EQ(own[3], lane >= 4 ? lane - 4 : lane);
    EXPECT_EQ(own[4], (lane ^ 2) + 100 * (lane / 8 * 8 + 1));
    EXPECT_EQ(static_cast<unsigned>(own[5]), thirds);
    EXPECT_EQ(own[6], 1);
    EXPECT_EQ(own[7], lane < 16 ? lane ^ 1 : -1);
  }
}

__global__ void CountWithAtomics(int* counter, int* greatest, float* sum, int* last) {
  atomicMax(greatest, static_cast<int>(threadIdx.x * 7 % 64));
  atomicAdd(sum, 0.5f);
  __threadfence();
  if (atomicAdd(counter, 1) == static_cast<int>(gridDim.x * blockDim.x) - 1) *last = 1;
}

TEST_F(EmulatedDevice, AtomicsCountOverBlocks) {
  int counter = 0, greatest = -1, last = 0;
  float sum = 0;
  ASSERT_TRUE(
      Run({3, 64, 0, "CountWithAtomics"}, CountWithAtomics, &counter, &greatest, &sum, &last).ok());
  EXPECT_EQ(counter, 192);
  EXPECT_EQ(greatest, 63);
  EXPECT_EQ(sum, 96.0f);
  EXPECT_EQ(last, 1);
}

// Warp 1 consumes what warp 0 makes, handed over and back by named barriers.
__global__ void HandOver(int* out) {
  int* const slot = SharedMemory<int>();
  for (int i = 0; i < 3; ++i) {
    if (threadIdx.x < 32) {
      slot[threadIdx.x] = 100 * i + static_cast<int>(threadIdx.x);
      NamedBarrierArrive(1, 64);
      NamedBarrierSync(2, 64);
    } else {
      NamedBarrierSync(1, 64);
      out[32 * i + threadIdx.x - 32] = slot[threadIdx.x - 32];
      NamedBarrierArrive(2, 64);
    }
  }
}

TEST_F(EmulatedDevice, NamedBarriersPairWarps) {
  std::vector<int> out(96);
  ASSERT_TRUE(Run({1, 64, 128, "HandOver"}, HandOver, out.data()).ok());
  for (int i = 0; i < 96; ++i) EXPECT_EQ(out[i], i / 32 * 100 + i % 32);
}

// --- What is wrong with a kernel is said, with its name, the block and the thread ---

__global__ void SyncInOneBranch() {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(EmulatedDevice, DivergentSyncthreadsIsAnError) {
  const absl::Status status = Run({2, 32, 0, "SyncInOneBranch"}, SyncInOneBranch);
  EXPECT_THAT(status.ToString(),
              HasSubstr("kernel SyncInOneBranch, block (0, 0, 0): thread (16, "));
  EXPECT_THAT(status.ToString(), HasSubstr("divergent __syncthreads"));
  // The device is lost, as a real one would be.
  EXPECT_EQ(runtime_->AllocateDevice(1).status().message(), status.message());
}

__global__ void EndBeforeSync() {
  if (threadIdx.x == 3) return;
  __syncthreads();
}

TEST_F(EmulatedDevice, AThreadThatNeverComesIsAnError) {
  const absl::Status status = Run({1, 8, 0, "EndBeforeSync"}, EndBeforeSync);
  EXPECT_THAT(status.ToString(), HasSubstr("thread (0, 0, 0) in __syncthreads at"));
  EXPECT_THAT(status.ToString(), HasSubstr("1 of 8 threads have ended"));
}

__global__ void ShuffleInABranch(int* out) {
  if (threadIdx.x % 2 == 0) *out = __shfl_xor_sync(~0u, 1, 2);
}

TEST_F(EmulatedDevice, AShuffleThatLanesOfItsMaskMissIsAnError) {
  int out = 0;
  EXPECT_THAT(Run({1, 32, 0, "ShuffleInABranch"}, ShuffleInABranch, &out).ToString(),
              HasSubstr("thread (0, 0, 0) in __shfl_xor_sync"));
}

__global__ void DifferentInstructions(int* out) {
  *out = threadIdx.x < 16 ? __shfl_xor_sync(~0u, 1, 2) : __any_sync(~0u, 1);
}

TEST_F(EmulatedDevice, LanesAtDifferentInstructionsAreAnError) {
  int out = 0;
  EXPECT_THAT(Run({1, 32, 0, "DifferentInstructions"}, DifferentInstructions, &out).ToString(),
              HasSubstr("divergent warp: __any_sync, others wait at __shfl_xor_sync"));
}

__global__ void ReadUnset(float* out) { *out = SharedMemory<float>()[0]; }

TEST_F(EmulatedDevice, SharedMemoryStartsAsNaN) {
  float out = 0;
  ASSERT_TRUE(Run({1, 1, 4, "ReadUnset"}, ReadUnset, &out).ok());
  EXPECT_TRUE(std::isnan(out));
}

TEST_F(EmulatedDevice, RefusesShapesThatAGpuRefuses) {
  for (const LaunchShape& shape :
       {LaunchShape{1, 1025, 0, "WriteIndexes"}, LaunchShape{0, 1, 0, "WriteIndexes"},
        LaunchShape{1, 1, 227 * 1024 + 1, "WriteIndexes"}}) {
    auto stream = *runtime_->CreateStream(StreamPriority::kNormal);
    unsigned out = 0;
    Launch(*stream, shape, WriteIndexes, &out);
    const absl::Status status = runtime_->Synchronize(*stream);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.ToString(), HasSubstr("launch of WriteIndexes"));
  }
}

}  // namespace
}  // namespace refrain::kernels::cuda
