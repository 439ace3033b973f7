#include "tools/bench/gpu_bench_device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace refrain::bench {

using kernels::cuda::Event;
using kernels::cuda::Graph;

void MustBeOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

BenchDevice::BenchDevice(int index)
    : runtime_(MustHave(kernels::cuda::OpenDevice(index))),
      stream_(MustHave(runtime_->CreateStream(kernels::cuda::StreamPriority::kHigh))) {
  MustBeOk(runtime_->MakeCurrent());
}

BenchDevice::~BenchDevice() {
  for (std::byte* data : allocated_) runtime_->FreeDevice(data);
  for (std::byte* data : pinned_) runtime_->FreePinned(data);
  stream_.reset();
}

std::byte* BenchDevice::Allocate(size_t bytes) {
  allocated_.push_back(MustHave(runtime_->AllocateDevice(bytes)));
  return allocated_.back();
}

std::byte* BenchDevice::AllocatePinned(size_t bytes) {
  pinned_.push_back(MustHave(runtime_->AllocatePinned(bytes)));
  return pinned_.back();
}

void BenchDevice::Release(std::byte* data) {
  std::erase(allocated_, data);
  runtime_->FreeDevice(data);
}

void BenchDevice::CopyIn(std::byte* to, std::span<const std::byte> from) {
  MustBeOk(runtime_->Copy(to, from.data(), from.size(), *stream_));
}

void BenchDevice::CopyOut(std::span<std::byte> to, const std::byte* from) {
  MustBeOk(runtime_->Copy(to.data(), from, to.size(), *stream_));
}

void BenchDevice::Synchronize() { MustBeOk(runtime_->Synchronize(*stream_)); }

GraphTiming BenchDevice::TimeGraph(const std::function<void()>& record, int rounds) {
  MustBeOk(runtime_->BeginCapture(*stream_));
  record();
  const std::unique_ptr<Graph> graph = MustHave(runtime_->EndCapture(*stream_));
  return Time([&] { MustBeOk(runtime_->LaunchGraph(*graph, *stream_)); }, rounds);
}

GraphTiming BenchDevice::TimeWork(const std::function<void()>& work, int rounds) {
  return Time(work, rounds);
}

GraphTiming BenchDevice::Time(const std::function<void()>& work, int rounds) {
  const std::unique_ptr<Event> begin = MustHave(runtime_->CreateTimingEvent());
  const std::unique_ptr<Event> end = MustHave(runtime_->CreateTimingEvent());
  work();
  Synchronize();
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    MustBeOk(runtime_->Record(*begin, *stream_));
    work();
    MustBeOk(runtime_->Record(*end, *stream_));
    Synchronize();
    seconds.push_back(MustHave(runtime_->MillisecondsBetween(*begin, *end)) * 1e-3);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

double BenchDevice::CopyBytesPerSecond(std::byte* data, size_t bytes, int rounds) {
  const size_t half = bytes / 2 / 256 * 256;
  const GraphTiming timing =
      TimeWork([&] { MustBeOk(runtime_->CopyAsync(data + half, data, half, *stream_)); }, rounds);
  return 2.0 * static_cast<double>(half) / timing.median_s;
}

}  // namespace refrain::bench
