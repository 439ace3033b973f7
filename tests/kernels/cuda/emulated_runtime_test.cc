// The emulated runtime: order of streams and events, memory, failures.

#include "kernels/cuda/emulated/emulated_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "kernels/cuda/device_language.h"

namespace refrain::kernels::cuda {
namespace {

using emulated::MakeEmulatedRuntime;
using testing::HasSubstr;

__global__ void AddOne(int* value) { *value += 1; }
__global__ void Double(int* value) { *value *= 2; }

class EmulatedRuntimeTest : public testing::Test {
 protected:
  std::unique_ptr<Runtime> runtime_ = MakeEmulatedRuntime({});
  std::unique_ptr<Stream> first_ = *runtime_->CreateStream(StreamPriority::kNormal);
  std::unique_ptr<Stream> second_ = *runtime_->CreateStream(StreamPriority::kHigh);
};

TEST_F(EmulatedRuntimeTest, AStreamKeepsItsOrderAndRunsWhenWaitedFor) {
  int value = 1;
  Launch(*first_, {1, 1, 0, "AddOne"}, AddOne, &value);
  Launch(*first_, {1, 1, 0, "Double"}, Double, &value);
  EXPECT_EQ(value, 1);
  ASSERT_TRUE(runtime_->Synchronize(*first_).ok());
  EXPECT_EQ(value, 4);
}

TEST_F(EmulatedRuntimeTest, OnlyAnEventOrdersTwoStreams) {
  for (const bool with_event : {false, true}) {
    int value = 1;
    auto event = *runtime_->CreateEvent();
    Launch(*first_, {1, 1, 0, "AddOne"}, AddOne, &value);
    ASSERT_TRUE(runtime_->Record(*event, *first_).ok());
    EXPECT_FALSE(*runtime_->HasPassed(*event));
    if (with_event) {
      ASSERT_TRUE(runtime_->WaitFor(*event, *second_).ok());
    }
    Launch(*second_, {1, 1, 0, "Double"}, Double, &value);
    ASSERT_TRUE(runtime_->Synchronize(*second_).ok());
    ASSERT_TRUE(runtime_->Synchronize(*first_).ok());
    EXPECT_TRUE(*runtime_->HasPassed(*event));
    EXPECT_EQ(value, with_event ? 4 : 3);
  }
}

TEST_F(EmulatedRuntimeTest, WaitingForAnEventRunsUpToItOnly) {
  int value = 1;
  auto event = *runtime_->CreateEvent();
  Launch(*first_, {1, 1, 0, "AddOne"}, AddOne, &value);
  ASSERT_TRUE(runtime_->Record(*event, *first_).ok());
  Launch(*first_, {1, 1, 0, "Double"}, Double, &value);
  ASSERT_TRUE(runtime_->Synchronize(*event).ok());
  EXPECT_EQ(value, 2);
}

// As on a GPU, where other events are made without times.
TEST_F(EmulatedRuntimeTest, OnlyTimingEventsTellTimes) {
  auto begin = *runtime_->CreateTimingEvent(), end = *runtime_->CreateTimingEvent();
  auto plain = *runtime_->CreateEvent();
  for (Event* const event : {begin.get(), end.get(), plain.get()}) {
    ASSERT_TRUE(runtime_->Record(*event, *first_).ok());
  }
  ASSERT_TRUE(runtime_->Synchronize(*first_).ok());
  EXPECT_GE(*runtime_->MillisecondsBetween(*begin, *end), 0.0f);
  EXPECT_FALSE(runtime_->MillisecondsBetween(*begin, *plain).ok());
}

TEST_F(EmulatedRuntimeTest, GraphsRunWhatWasCaptured) {
  int value = 1;
  ASSERT_TRUE(runtime_->BeginCapture(*first_).ok());
  Launch(*first_, {1, 1, 0, "AddOne"}, AddOne, &value);
  Launch(*first_, {1, 1, 0, "Double"}, Double, &value);
  auto graph = runtime_->EndCapture(*first_);
  ASSERT_TRUE(graph.ok());
  ASSERT_TRUE(runtime_->Synchronize(*first_).ok());
  EXPECT_EQ(value, 1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(runtime_->LaunchGraph(**graph, *first_).ok());
  ASSERT_TRUE(runtime_->Synchronize(*first_).ok());
  EXPECT_EQ(value, 10);
}

// A copy that is under way when its source changes takes the new bytes: they must stay.
TEST_F(EmulatedRuntimeTest, CopiesReadPinnedMemoryLate) {
  std::byte* const pinned = *runtime_->AllocatePinned(4);
  std::byte* const memory = *runtime_->AllocateDevice(4);
  std::memset(pinned, 1, 4);
  ASSERT_TRUE(runtime_->CopyAsync(memory, pinned, 4, *first_).ok());
  std::memset(pinned, 2, 4);
  std::byte back[4];
  ASSERT_TRUE(runtime_->Copy(back, memory, 4, *first_).ok());
  EXPECT_EQ(back[3], std::byte{2});
  std::byte pageable[4];
  EXPECT_EQ(runtime_->CopyAsync(memory, pageable, 4, *first_).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(runtime_->CopyAsync(memory, pinned, 5, *first_).ok());
}

TEST_F(EmulatedRuntimeTest, MemoryRunsOutWithNeedAndHave) {
  auto runtime = MakeEmulatedRuntime({.memory_bytes = 1000});
  std::byte* const memory = *runtime->AllocateDevice(600);
  const absl::Status status = runtime->AllocateDevice(500).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.ToString(), HasSubstr("need 500 bytes of device memory, have 400"));
  runtime->FreeDevice(memory);
  EXPECT_TRUE(runtime->AllocateDevice(500).ok());
}

TEST_F(EmulatedRuntimeTest, TheNthCallFails) {
  auto runtime = MakeEmulatedRuntime({.failing_call = "CopyAsync", .failing_call_index = 1});
  auto stream = *runtime->CreateStream(StreamPriority::kNormal);
  std::byte* const memory = *runtime->AllocateDevice(8);
  EXPECT_TRUE(runtime->CopyAsync(memory, memory + 4, 4, *stream).ok());
  EXPECT_THAT(runtime->CopyAsync(memory, memory + 4, 4, *stream).ToString(),
              HasSubstr("CopyAsync: injected failure"));
  EXPECT_TRUE(runtime->CopyAsync(memory, memory + 4, 4, *stream).ok());
}

TEST_F(EmulatedRuntimeTest, ALaunchNeedsItsDeviceToBeTheThreads) {
  int value = 1;
  std::thread([&] { Launch(*first_, {1, 1, 0, "AddOne"}, AddOne, &value); }).join();
  EXPECT_THAT(runtime_->Synchronize(*first_).ToString(), HasSubstr("not the calling thread's"));
  const auto other = MakeEmulatedRuntime({.devices = 2, .index = 1});
  Launch(*second_, {1, 1, 0, "AddOne"}, AddOne, &value);
  EXPECT_THAT(runtime_->Synchronize(*second_).ToString(), HasSubstr("launch of AddOne"));
  EXPECT_EQ(value, 1);
  ASSERT_TRUE(runtime_->MakeCurrent().ok());
  const auto third = *runtime_->CreateStream(StreamPriority::kNormal);
  Launch(*third, {1, 1, 0, "AddOne"}, AddOne, &value);
  EXPECT_TRUE(runtime_->Synchronize(*third).ok());
  EXPECT_EQ(value, 2);
}

TEST_F(EmulatedRuntimeTest, AnErrorOfTheDeviceStays) {
  auto runtime = MakeEmulatedRuntime({.failing_call = "Kernel", .failing_call_index = 0});
  auto stream = *runtime->CreateStream(StreamPriority::kNormal);
  int value = 1;
  Launch(*stream, {1, 1, 0, "AddOne"}, AddOne, &value);
  EXPECT_TRUE(runtime->AllocateDevice(8).ok());  // nobody has noticed yet
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(runtime->Synchronize(*stream).ToString(), HasSubstr("kernel AddOne: injected"));
  }
  EXPECT_FALSE(runtime->AllocateDevice(8).ok());
  EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace refrain::kernels::cuda
