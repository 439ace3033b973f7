// What runtime_cuda.cc makes of errors, over a runtime that fails when told to. Compiled and run by
// runtime_cuda_test.sh.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/runtime.h"
#include "tests/kernels/cuda/fake_cuda_runtime.h"

namespace refrain::kernels::cuda {

absl::StatusOr<std::unique_ptr<ProductLibrary>> OpenCublasLt() {
  return absl::NotFoundError("none is linked here");
}

namespace {

using ::refrain::testing::FakeCudaRuntime;
using ::refrain::testing::TheFakeCudaRuntime;
using ::testing::HasSubstr;

class RuntimeCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    TheFakeCudaRuntime() = FakeCudaRuntime();
    runtime_ = *OpenDevice(0);
    stream_ = *runtime_->CreateStream(StreamPriority::kHigh);
    event_ = *runtime_->CreateEvent();
    ASSERT_TRUE(runtime_->BeginCapture(*stream_).ok());
    graph_ = *runtime_->EndCapture(*stream_);
  }

  // What `call` says where the runtime's function of this name fails so.
  absl::Status Failing(const std::string& name, cudaError_t error,
                       const std::function<absl::Status()>& call) {
    TheFakeCudaRuntime().fails = {{name, error}};
    absl::Status status = call();
    TheFakeCudaRuntime().fails.clear();
    EXPECT_EQ(TheFakeCudaRuntime().last_error, cudaSuccess) << name << ": left to the next launch";
    return status;
  }

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> event_;
  std::unique_ptr<Graph> graph_;
};

TEST_F(RuntimeCuda, WhatFindsNoMemoryHasDoneNothingAndSaysSo) {
  std::byte* const bytes = *runtime_->AllocateDevice(8);
  const std::vector<std::pair<std::string, std::function<absl::Status()>>> calls = {
      {"cudaMalloc", [&] { return runtime_->AllocateDevice(8).status(); }},
      {"cudaMallocHost", [&] { return runtime_->AllocatePinned(8).status(); }},
      {"cudaStreamCreateWithPriority",
       [&] { return runtime_->CreateStream(StreamPriority::kNormal).status(); }},
      {"cudaEventCreateWithFlags", [&] { return runtime_->CreateEvent().status(); }},
      {"cudaEventCreateWithFlags", [&] { return runtime_->CreateTimingEvent().status(); }},
      {"cudaEventRecord", [&] { return runtime_->Record(*event_, *stream_); }},
      {"cudaStreamWaitEvent", [&] { return runtime_->WaitFor(*event_, *stream_); }},
      {"cudaMemcpyAsync", [&] { return runtime_->CopyAsync(bytes, bytes, 8, *stream_); }},
      {"cudaMemcpyAsync", [&] { return runtime_->Copy(bytes, bytes, 8, *stream_); }},
      {"cudaMemcpy2DAsync",
       [&] { return runtime_->CopyRowsAsync(bytes, 4, bytes, 4, 4, 2, *stream_); }},
      {"cudaMemsetAsync", [&] { return runtime_->FillAsync(bytes, 0, 8, *stream_); }},
      {"cudaGraphLaunch", [&] { return runtime_->LaunchGraph(*graph_, *stream_); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_EQ(call(), absl::OkStatus()) << name;
    const absl::Status status = Failing(name, cudaErrorMemoryAllocation, call);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << name;
    EXPECT_THAT(status.message(), HasSubstr(name + ":"));
    EXPECT_EQ(Failing(name, cudaErrorIllegalAddress, call).code(), absl::StatusCode::kInternal)
        << name;
  }
}

// Of whatever was in front of them: nobody may run that again as if it had not been.
TEST_F(RuntimeCuda, WhoWaitsLearnsOfEarlierWorkThatIsLost) {
  std::byte* const bytes = *runtime_->AllocateDevice(8);
  const std::vector<std::pair<std::string, std::function<absl::Status()>>> calls = {
      {"cudaStreamSynchronize", [&] { return runtime_->Synchronize(*stream_); }},
      {"cudaStreamSynchronize", [&] { return runtime_->Copy(bytes, bytes, 8, *stream_); }},
      {"cudaEventSynchronize", [&] { return runtime_->Synchronize(*event_); }},
      {"cudaEventQuery", [&] { return runtime_->HasPassed(*event_).status(); }},
      {"cudaEventElapsedTime",
       [&] { return runtime_->MillisecondsBetween(*event_, *event_).status(); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_EQ(call(), absl::OkStatus()) << name;
    const absl::Status status = Failing(name, cudaErrorMemoryAllocation, call);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << name;
    EXPECT_THAT(status.message(), HasSubstr(name + ": cudaErrorMemoryAllocation"));
  }
}

// A server on another card, or on the CPU (FAILED_PRECONDITION), starts all the same.
TEST_F(RuntimeCuda, ASickDeviceIsTheBusinessOfWhoAsksForIt) {
  TheFakeCudaRuntime().devices = 3;
  TheFakeCudaRuntime().sick_devices = {{1, cudaErrorUnknown}};
  for (const int index : {0, 2}) {
    const auto runtime = OpenDevice(index);
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    EXPECT_EQ((*runtime)->properties().index, index);
  }
  const auto devices = ListDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].name, "A");
  EXPECT_EQ((*devices)[1].name, "C");
  EXPECT_EQ((*devices)[1].index, 2);
  const absl::Status sick = OpenDevice(1).status();
  EXPECT_EQ(sick.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(sick.message(),
              HasSubstr("CUDA device 1 cannot be used: cudaGetDeviceProperties: cudaErrorOther"));
  const absl::Status none = OpenDevice(3).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("no CUDA device 3; devices: 0 (A), 1 (cannot be used: "));
  EXPECT_THAT(none.message(), HasSubstr("), 2 (C)"));
  EXPECT_EQ(TheFakeCudaRuntime().last_error, cudaSuccess);
}

TEST_F(RuntimeCuda, WhereAllDevicesAreSickThereIsNoneToUse) {
  TheFakeCudaRuntime().sick_devices = {{0, cudaErrorUnknown}};
  for (const absl::Status& status : {ListDevices().status(), OpenDevice(0).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("cannot be used: cudaGetDeviceProperties: "));
  }
}

// Makes the driver's context.
TEST_F(RuntimeCuda, ADeviceThatCannotBeMadeCurrentCannotBeUsed) {
  const absl::Status status =
      Failing("cudaSetDevice", cudaErrorDevicesUnavailable, [] { return OpenDevice(0).status(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("CUDA device 0 (A) cannot be used: cudaSetDevice: "));
}

}  // namespace
}  // namespace refrain::kernels::cuda
