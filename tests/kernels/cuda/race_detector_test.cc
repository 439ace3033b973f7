// The race detector of the emulated device on kernels that are right, and on the same kernels with
// one thing left out. All of them compute the right thing on the emulated device, which runs
// threads, blocks and kernels in a good order. This file is compiled as --config=racecheck compiles
// kernels.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/wgmma.h"

namespace refrain::kernels::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RaceDetectorTest : public testing::Test {
 protected:
  template <class... Params, class... Args>
  void Put(const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
    Launch(*stream_, shape, kernel, std::forward<Args>(args)...);
  }
  template <class... Params, class... Args>
  absl::Status Run(const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
    Put(shape, kernel, std::forward<Args>(args)...);
    return runtime_->Synchronize(*stream_);
  }
  // The kernel is right with `true` and, with `false`, lacks what orders `what`.
  void ExpectNeeded(LaunchShape shape, void (*kernel)(bool, int*), const char* what) {
    std::vector<int> out(4096);
    const absl::Status right = Run(shape, kernel, true, out.data());
    EXPECT_TRUE(right.ok()) << right;
    const absl::Status wrong = Run(shape, kernel, false, out.data());
    EXPECT_THAT(wrong.ToString(), AllOf(HasSubstr("race on"), HasSubstr(what)));
  }

  std::unique_ptr<Runtime> runtime_ = emulated::MakeEmulatedRuntime({});
  std::unique_ptr<Stream> stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
};

// --- Threads of a block ---

__global__ void ReadNeighbour(bool sync, int* out) {
  int* const values = SharedMemory<int>();
  const int own = static_cast<int>(threadIdx.x), count = static_cast<int>(blockDim.x);
  values[own] = own;
  if (sync) __syncthreads();
  out[own] = values[(own + count - 1) % count];
}

TEST_F(RaceDetectorTest, ABarrierIsNeededBeforeAnotherThreadReads) {
  ExpectNeeded({1, 64, 64 * 4, "ReadNeighbour"}, ReadNeighbour,
               "race on byte 0 of shared memory: thread 1 reads (race_detector_test.cc:");
}

__global__ void WriteAgain(bool sync, int* out) {
  int* const value = SharedMemory<int>();
  if (threadIdx.x == 0) *value = 7;
  __syncthreads();
  out[threadIdx.x] = *value;
  if (sync) __syncthreads();
  if (threadIdx.x == 40) *value = 8;
}

TEST_F(RaceDetectorTest, ABarrierIsNeededBeforeWhatOthersReadIsWrittenAgain) {
  ExpectNeeded({1, 64, 4, "WriteAgain"}, WriteAgain, "thread 40 writes");
}

__global__ void WithinAWarp(bool sync, int* out) {
  int* const values = SharedMemory<int>();
  values[threadIdx.x] = 1;
  __shfl_xor_sync(~0u, 0, 1);  // all lanes have written, but nothing says that it is seen
  if (sync) __syncwarp();
  out[threadIdx.x] = values[31 - threadIdx.x];
}

TEST_F(RaceDetectorTest, AShuffleOrdersNothingWithinAWarp) {
  ExpectNeeded({1, 32, 32 * 4, "WithinAWarp"}, WithinAWarp, "reads");
}

// The second warp fills what the first one reads.
__global__ void FillForTheOther(bool sync, int* out) {
  int* const values = SharedMemory<int>();
  if (threadIdx.x >= 32) {
    values[threadIdx.x - 32] = 3;
    NamedBarrierArrive(1, 64);
    values[threadIdx.x] = 4;  // behind its arrival: nobody may read it
    NamedBarrierArrive(2, 64);
  } else {
    NamedBarrierSync(1, 64);
    out[threadIdx.x] = values[threadIdx.x];
    if (!sync) out[threadIdx.x] = values[threadIdx.x + 32];
    NamedBarrierSync(2, 64);
    out[threadIdx.x] = values[threadIdx.x + 32];
  }
}

TEST_F(RaceDetectorTest, ANamedBarrierOrdersWhatWasDoneBeforeTheArrival) {
  ExpectNeeded({1, 64, 64 * 4, "FillForTheOther"}, FillForTheOther, "of shared memory");
}

__global__ void AddAtomically(bool atomically, int* out) {
  if (atomically) {
    atomicAdd(SharedMemory<int>(), 1);
  } else {
    ++*SharedMemory<int>();
  }
  __syncthreads();
  out[threadIdx.x] = *SharedMemory<int>();
}

TEST_F(RaceDetectorTest, AtomicUpdatesDoNotRace) {
  ExpectNeeded({1, 64, 4, "AddAtomically"}, AddAtomically, "of shared memory");
}

// Neighbours write halves of one word.
__global__ void WriteHalves(bool halves, int* out) {
  auto* const values = SharedMemory<uint16_t>();
  values[halves ? threadIdx.x : threadIdx.x / 2] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x / 2];
}

TEST_F(RaceDetectorTest, BytesOfOneWordAreToldApart) {
  ExpectNeeded({1, 64, 128, "WriteHalves"}, WriteHalves, "thread 1 writes");
}

// --- Copies, and barriers in shared memory ---

__global__ void CopyForAll(bool sync, int* out) {
  int* const values = SharedMemory<int>();
  if (threadIdx.x < 16) CopyAsync16(values + 4 * threadIdx.x, out + 1024 + 4 * threadIdx.x, true);
  CopyAsyncCommit();
  CopyAsyncWait<0>();
  if (sync) __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

TEST_F(RaceDetectorTest, AWaitForCopiesIsTheThreadsOwn) {
  ExpectNeeded({1, 64, 64 * 4, "CopyForAll"}, CopyForAll, "a copy of thread 0 writes");
}

struct Ring {
  alignas(128) int values[32];
  uint64_t full, empty;
};

// One warp fills, the other reads, twice through a ring of one unit.
__global__ void ReadRing(bool let_go_late, int* out) {
  Ring& ring = *SharedMemory<Ring>();
  if (threadIdx.x == 0) {
    BarrierInit(&ring.full, 1);
    BarrierInit(&ring.empty, 32);
    BarrierInitFence();
  }
  __syncthreads();
  for (int turn = 0; turn < 2; ++turn) {
    const uint32_t parity = turn % 2;
    if (threadIdx.x == 32) {
      BarrierWait(&ring.empty, parity ^ 1);
      BarrierExpectBytes(&ring.full, sizeof(ring.values));
      BulkCopyToShared(ring.values, out + 1024, sizeof(ring.values), &ring.full);
    } else if (threadIdx.x < 32) {
      BarrierWait(&ring.full, parity);
      if (!let_go_late) BarrierArrive(&ring.empty);
      out[threadIdx.x] = ring.values[threadIdx.x];
      if (let_go_late) BarrierArrive(&ring.empty);
    }
  }
}

TEST_F(RaceDetectorTest, AUnitOfARingIsLetGoBehindItsLastRead) {
  ExpectNeeded({1, 64, sizeof(Ring), "ReadRing"}, ReadRing, "a bulk copy writes");
}

__global__ void CopyUnit(int first, uint4* out) {
  *out = *reinterpret_cast<const uint4*>(SharedMemory<uint32_t>() + first);
}

TEST_F(RaceDetectorTest, AnAccessPastTheEndOfSharedMemoryIsAnError) {
  uint4 out;
  EXPECT_EQ(Run({1, 1, 32, "CopyUnit"}, CopyUnit, 4, &out), absl::OkStatus());
  EXPECT_THAT(Run({1, 1, 32, "CopyUnit"}, CopyUnit, 8 - 2, &out).ToString(),
              HasSubstr("beyond the end of the block's shared memory"));
}

__global__ void InitBarrierUnseen(bool sync, int* out) {
  Ring& ring = *SharedMemory<Ring>();
  if (threadIdx.x == 0) BarrierInit(&ring.full, 64);
  if (sync) __syncthreads();
  BarrierArrive(&ring.full);
  out[threadIdx.x] = 0;
}

TEST_F(RaceDetectorTest, ABarrierIsUsedBehindItsInitialisation) {
  ExpectNeeded({1, 64, sizeof(Ring), "InitBarrierUnseen"}, InitBarrierUnseen, "of shared memory");
}

__global__ void CopyOverZeros(bool fence, int* out) {
  Ring& ring = *SharedMemory<Ring>();
  if (threadIdx.x == 0) {
    BarrierInit(&ring.full, 1);
    BarrierInitFence();
  }
  ring.values[threadIdx.x] = 0;
  if (fence) AsyncProxyFence();
  __syncthreads();
  if (threadIdx.x == 0) {
    BarrierExpectBytes(&ring.full, sizeof(ring.values));
    BulkCopyToShared(ring.values, out + 1024, sizeof(ring.values), &ring.full);
  }
  BarrierWait(&ring.full, 0);
  out[threadIdx.x] = ring.values[threadIdx.x];
}

TEST_F(RaceDetectorTest, ABulkCopyOverPlainWritesNeedsAProxyFence) {
  ExpectNeeded({1, 32, sizeof(Ring), "CopyOverZeros"}, CopyOverZeros, "no proxy fence");
}

// --- Warpgroup products ---

// Operands of 16-bit ones at bytes 0 (64 x 64) and 8192 (8 x 64), in the 128-byte swizzle, in which
// ones stand as they stand anywhere.
__device__ void FillOperands() {
  auto* const words = SharedMemory<uint32_t>();
  for (unsigned i = threadIdx.x; i < (8192 + 1024) / 4; i += blockDim.x) words[i] = 0x3c003c00;
}
__device__ void IssueProduct(float (&d)[4]) {
  const auto* const shared = SharedMemory<unsigned char>();
  HoldRegisters(d);
  WgmmaFence();
  WgmmaM64K16<F16, 8>(d, SharedDescriptor(shared, 0, 1024, Swizzle::k128Bytes),
                      SharedDescriptor(shared + 8192, 0, 1024, Swizzle::k128Bytes), false);
  WgmmaCommit();
}

constexpr size_t kOperandBytes = 8192 + 1024;

__global__ void MultiplyWritten(bool fence, int* out) {
  FillOperands();
  if (fence) AsyncProxyFence();
  __syncthreads();
  float d[4];
  IssueProduct(d);
  WgmmaWait<0>();
  HoldRegisters(d);
  out[threadIdx.x] = static_cast<int>(d[0]);
}

TEST_F(RaceDetectorTest, AProductOfPlainWritesNeedsAProxyFence) {
  ExpectNeeded({1, 128, kOperandBytes, "MultiplyWritten"}, MultiplyWritten, "no proxy fence");
}

__global__ void MultiplyUnsynced(bool sync, int* out) {
  FillOperands();
  AsyncProxyFence();
  if (sync) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  float d[4];
  IssueProduct(d);
  WgmmaWait<0>();
  HoldRegisters(d);
  out[threadIdx.x] = static_cast<int>(d[0]);
}

TEST_F(RaceDetectorTest, AProductReadsWhatOtherWarpsWroteOnlyBehindABarrier) {
  ExpectNeeded({1, 128, kOperandBytes, "MultiplyUnsynced"}, MultiplyUnsynced,
               "a product of warpgroup 0 reads");
}

__global__ void WriteOverOperands(bool behind_wait, int* out) {
  FillOperands();
  AsyncProxyFence();
  __syncthreads();
  float d[4];
  IssueProduct(d);
  if (!behind_wait) SharedMemory<uint32_t>()[threadIdx.x] = 0;
  WgmmaWait<0>();
  HoldRegisters(d);
  out[threadIdx.x] = static_cast<int>(d[0]);
}

TEST_F(RaceDetectorTest, OperandsBelongToTheProductUntilItsWait) {
  ExpectNeeded({1, 128, kOperandBytes, "WriteOverOperands"}, WriteOverOperands,
               "after a product of warpgroup 0 reads");
}

// The wait is each warp's own: what a product read may be written by others behind a barrier only.
__global__ void WriteOverOperandsOfOthers(bool sync, int* out) {
  FillOperands();
  AsyncProxyFence();
  __syncthreads();
  if (threadIdx.x < 128) {
    float d[4];
    IssueProduct(d);
    WgmmaWait<0>();
    HoldRegisters(d);
    out[threadIdx.x] = static_cast<int>(d[0]);
    if (sync) NamedBarrierArrive(1, 160);
  } else {
    if (sync) NamedBarrierSync(1, 160);
    SharedMemory<uint32_t>()[threadIdx.x] = 0;
  }
}

TEST_F(RaceDetectorTest, OtherWarpsWriteOverOperandsBehindABarrierOnly) {
  ExpectNeeded({1, 160, kOperandBytes, "WriteOverOperandsOfOthers"}, WriteOverOperandsOfOthers,
               "of shared memory");
}

// --- Blocks of a grid ---

__global__ void WriteOwnWord(bool own, int* out) { out[own ? blockIdx.x : 0] = 1; }

TEST_F(RaceDetectorTest, BlocksDoNotWriteTheSameWord) {
  ExpectNeeded({2, 1, 0, "WriteOwnWord"}, WriteOwnWord, "race on device memory");
}

// What all blocks wrote is added by the last one.
template <bool kFenceBefore, bool kFenceBehind, bool kSync>
__global__ void AddUp(int* out) {
  int* const last = SharedMemory<int>();
  int* const counter = out + 1000;
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  if (kSync) __syncthreads();
  if (threadIdx.x == 0) {
    if (kFenceBefore) __threadfence();
    *last = atomicAdd(counter, 1) == static_cast<int>(gridDim.x) - 1;
    if (kFenceBehind) __threadfence();
  }
  __syncthreads();
  if (*last == 0 || threadIdx.x != 5) return;
  int sum = 0;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) sum += out[i];
  out[999] = sum;
  *counter = 0;
}

TEST_F(RaceDetectorTest, ACounterOrdersBlocksBetweenItsFences) {
  std::vector<int> out(1024);
  const auto run = [&](void (*kernel)(int*)) {
    out[1000] = 0;
    return Run({3, 32, 4, "AddUp"}, kernel, out.data()).ToString();
  };
  EXPECT_EQ(run(AddUp<true, true, true>), "OK");
  EXPECT_EQ(out[999], 96);
  EXPECT_EQ(run(AddUp<true, true, true>), "OK");
  for (const auto kernel :
       {AddUp<false, true, true>, AddUp<true, false, true>, AddUp<true, true, false>}) {
    runtime_ = emulated::MakeEmulatedRuntime({});
    stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
    EXPECT_THAT(run(kernel), HasSubstr("race on device memory"));
  }
}

// As each thread may fence what the one with the atomic saw.
__global__ void AddUpBehindFencesOfAll(bool fences, int* out) {
  int* const last = SharedMemory<int>();
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    *last = atomicAdd(out + 1000, 1) == static_cast<int>(gridDim.x) - 1;
  }
  __syncthreads();
  if (*last == 0) return;
  if (fences) __threadfence();
  if (threadIdx.x != 7) return;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) out[999] += out[i];
  out[1000] = 0;
}

TEST_F(RaceDetectorTest, AFenceBehindAnAtomicMayBeAnotherThreads) {
  ExpectNeeded({3, 32, 4, "AddUpBehindFencesOfAll"}, AddUpBehindFencesOfAll, "of block 0 writes");
}

// Each thread fences what it wrote itself, before the barrier.
__global__ void AddUpBehindOwnFences(bool fences, int* out) {
  int* const last = SharedMemory<int>();
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  if (fences || threadIdx.x == 0) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    *last = atomicAdd(out + 1000, 1) == static_cast<int>(gridDim.x) - 1;
    __threadfence();
  }
  __syncthreads();
  if (*last == 0 || threadIdx.x != 0) return;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) out[999] += out[i];
  out[1000] = 0;
}

TEST_F(RaceDetectorTest, AFenceIsForWhatWasDoneBeforeIt) {
  ExpectNeeded({3, 32, 4, "AddUpBehindOwnFences"}, AddUpBehindOwnFences, "of block 0 writes");
}

// --- Kernels that overlap ---

__global__ void WriteWord(bool wait, int* out) {
  if (wait) WaitForKernelBefore();
  LetDependentsStart();
  if (blockIdx.x == 1) out[0] = 1;
}
__global__ void ReadWord(bool wait, int* out) {
  if (wait && threadIdx.x == 0) WaitForKernelBefore();
  __syncthreads();
  out[1 + threadIdx.x] = out[0];
}
__global__ void DoNothing() {}
__global__ void JustWait() { WaitForKernelBefore(); }

constexpr LaunchShape kWrite = {2, 1, 0, "WriteWord"};
LaunchShape Early(LaunchShape shape) {
  shape.early = true;
  return shape;
}

TEST_F(RaceDetectorTest, AnEarlyKernelWaitsBeforeItReadsWhatTheOneBeforeWrites) {
  std::vector<int> out(64);
  const LaunchShape read = {1, 32, 0, "ReadWord"};
  Put(kWrite, WriteWord, false, out.data());
  Put(Early(read), ReadWord, true, out.data());
  Put(kWrite, WriteWord, false, out.data());
  EXPECT_EQ(Run(read, ReadWord, false, out.data()), absl::OkStatus());
  Put(kWrite, WriteWord, false, out.data());
  EXPECT_THAT(Run(Early(read), ReadWord, false, out.data()).ToString(),
              HasSubstr("of a kernel before writes"));
}

TEST_F(RaceDetectorTest, WhatTheHostWaitedForHasEnded) {
  std::vector<int> out(64);
  EXPECT_EQ(Run(kWrite, WriteWord, false, out.data()), absl::OkStatus());
  EXPECT_EQ(Run(Early({1, 32, 0, "ReadWord"}), ReadWord, false, out.data()), absl::OkStatus());
}

// An event that is recorded between two kernels holds up neither.
TEST_F(RaceDetectorTest, AnEventBetweenTwoKernelsIsNoWait) {
  std::vector<int> out(64);
  const auto event = *runtime_->CreateEvent();
  Put(kWrite, WriteWord, false, out.data());
  EXPECT_TRUE(runtime_->Record(*event, *stream_).ok());
  EXPECT_THAT(Run(Early({1, 32, 0, "ReadWord"}), ReadWord, false, out.data()).ToString(),
              HasSubstr("of a kernel before"));
}

TEST_F(RaceDetectorTest, AWaitIsForTheKernelsBeforeOnlyIfThatOneWaitedToo) {
  std::vector<int> out(64);
  const LaunchShape read = Early({1, 32, 0, "ReadWord"});
  Put(kWrite, WriteWord, false, out.data());
  Put(Early({1, 1, 0, "JustWait"}), JustWait);
  EXPECT_EQ(Run(read, ReadWord, true, out.data()), absl::OkStatus());
  Put(kWrite, WriteWord, false, out.data());
  Put({1, 1, 0, "DoNothing"}, DoNothing);
  EXPECT_EQ(Run(read, ReadWord, true, out.data()), absl::OkStatus());
  Put(kWrite, WriteWord, false, out.data());
  Put(Early({1, 1, 0, "DoNothing"}), DoNothing);
  EXPECT_THAT(Run(read, ReadWord, true, out.data()).ToString(), HasSubstr("of a kernel before"));
}

}  // namespace
}  // namespace refrain::kernels::cuda
