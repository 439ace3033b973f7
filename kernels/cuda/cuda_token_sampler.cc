#include "kernels/cuda/cuda_token_sampler.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "kernels/cuda/copy_small.h"
#include "kernels/cuda/logprobs.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/scratch.h"

namespace refrain::kernels::cuda {
namespace {

// Edits and allowed tokens that there is memory for from the start, whoever has the rest of it.
constexpr size_t kListedPerSlot = 64;
constexpr size_t kEntriesPerSlot = 1 + 20;

}  // namespace

absl::StatusOr<std::unique_ptr<TokenSampler>> CudaTokenSampler::Create(
    const TokenSamplerOptions& options, Runtime& runtime, Stream& stream, Device& device,
    StepClock& clock, BackendFailure& failure) {
  std::unique_ptr<CudaTokenSampler> sampler(
      new CudaTokenSampler(options, runtime, stream, device, clock, failure));
  if (absl::Status status = sampler->Allocate(); !status.ok()) return status;
  return std::unique_ptr<TokenSampler>(std::move(sampler));
}

CudaTokenSampler::CudaTokenSampler(const TokenSamplerOptions& options, Runtime& runtime,
                                   Stream& stream, Device& device, StepClock& clock,
                                   BackendFailure& failure)
    : options_(options),
      runtime_(runtime),
      stream_(stream),
      device_(device),
      clock_(clock),
      failure_(failure),
      rows_(runtime, stream, device),
      edits_(runtime, stream, device),
      allowed_(runtime, stream, device),
      ended_(static_cast<size_t>(options.max_in_flight)) {}

CudaTokenSampler::~CudaTokenSampler() {
  runtime_.Synchronize(stream_).IgnoreError();  // copies may be on their way
  for (const Ended& ended : ended_) {
    if (ended.tokens != nullptr) runtime_.FreePinned(ended.tokens);
    for (const LogprobsCall& call : ended.calls) {
      if (call.pinned != nullptr) runtime_.FreePinned(call.pinned);
    }
  }
}

absl::Status CudaTokenSampler::Allocate() {
  const auto slots = static_cast<size_t>(options_.num_slots);
  const size_t allowed_bytes = slots * kListedPerSlot * sizeof(int32_t);
  absl::Status reserved = rows_.Reserve(slots * sizeof(SamplingRow));
  if (reserved.ok()) reserved = edits_.Reserve(slots * kListedPerSlot * sizeof(LogitEdit));
  if (reserved.ok()) reserved = allowed_.Reserve(allowed_bytes);
  if (reserved.ok()) {
    reserved = ReserveScratch(device_, allowed_bytes, allowed_bytes, &allowed_logits_);
  }
  if (!reserved.ok()) return reserved;

  absl::StatusOr<DeviceBuffer> sampled = device_.Allocate(bytes(), false);
  if (!sampled.ok()) return sampled.status();
  sampled_ = *std::move(sampled);
  for (Ended& ended : ended_) {
    absl::StatusOr<std::byte*> tokens = runtime_.AllocatePinned(bytes());
    if (!tokens.ok()) return tokens.status();
    ended.tokens = *tokens;
    absl::StatusOr<std::unique_ptr<Event>> event = runtime_.CreateEvent();
    if (!event.ok()) return event.status();
    ended.copied = *std::move(event);
    // What every slot may ask for over HTTP is there from the start.
    ended.calls.emplace_back();
    reserved = MakeRoom(slots * (sizeof(LogprobsRow) + kEntriesPerSlot * sizeof(LogprobEntry)),
                        &ended.calls.front());
    if (!reserved.ok()) return reserved;
  }
  return absl::OkStatus();
}

void CudaTokenSampler::Sample(const SampleArgs& args) {
  failure_.KeepRefusal(stream_);
  if (args.rows.empty() || !failure_.none()) return;
  failure_.Keep(runtime_.MakeCurrent());
  if (failure_.none()) failure_.Keep(Launch(args));
}

absl::Status CudaTokenSampler::Launch(const SampleArgs& args) {
  SamplingLaunch launch;
  launch.num_rows = static_cast<int>(args.rows.size());
  launch.vocab = static_cast<int>(args.logits.cols);
  absl::StatusOr<const std::byte*> on_device = rows_.Upload(std::as_bytes(args.rows));
  if (!on_device.ok()) return on_device.status();
  launch.rows = reinterpret_cast<const SamplingRow*>(*on_device);
  if (!args.edits.empty()) {
    on_device = edits_.Upload(std::as_bytes(args.edits));
    if (!on_device.ok()) return on_device.status();
    launch.edits = reinterpret_cast<const LogitEdit*>(*on_device);
  }
  if (!args.allowed.empty()) {
    on_device = allowed_.Upload(std::as_bytes(args.allowed));
    if (!on_device.ok()) return on_device.status();
    launch.allowed = reinterpret_cast<const int32_t*>(*on_device);
    const size_t scratch_bytes = args.allowed.size() * sizeof(float);
    absl::Status status =
        ReserveScratch(device_, scratch_bytes, 2 * scratch_bytes, &allowed_logits_);
    if (!status.ok()) return status;
    launch.allowed_logits = reinterpret_cast<float*>(allowed_logits_.data());
  }
  launch.logits = static_cast<float*>(args.logits.data);
  launch.stride = args.logits.stride;
  launch.tokens = reinterpret_cast<int32_t*>(sampled_.data());
  LaunchSampling(stream_, launch);
  return absl::OkStatus();
}

void CudaTokenSampler::Logprobs(const LogprobsArgs& args) {
  failure_.KeepRefusal(stream_);
  if (args.rows.empty() || !failure_.none()) return;
  failure_.Keep(runtime_.MakeCurrent());
  if (failure_.none()) failure_.Keep(Launch(args));
}

absl::Status CudaTokenSampler::Launch(const LogprobsArgs& args) {
  assert(num_ended_ - num_awaited_ < ended_.size());
  Ended& ended = current();
  if (ended.num_calls == ended.calls.size()) ended.calls.emplace_back();
  LogprobsCall& call = ended.calls[ended.num_calls];
  const LogprobsRow& last = args.rows.back();
  const auto entries = static_cast<size_t>(last.entry_begin) + 1 + static_cast<size_t>(last.top);
  const size_t entries_bytes = entries * sizeof(LogprobEntry);
  absl::Status status = MakeRoom(entries_bytes + args.rows.size_bytes(), &call);
  if (!status.ok()) return status;
  call.entries = entries;
  ++ended.num_calls;
  std::memcpy(call.pinned + entries_bytes, args.rows.data(), args.rows.size_bytes());
  LogprobsLaunch launch;
  launch.num_rows = static_cast<int>(args.rows.size());
  launch.vocab = static_cast<int>(args.logits.cols);
  launch.rows = reinterpret_cast<const LogprobsRow*>(call.pinned + entries_bytes);
  launch.logits = static_cast<const float*>(args.logits.data);
  launch.stride = args.logits.stride;
  launch.sampled = sampled();
  launch.entries = reinterpret_cast<LogprobEntry*>(call.pinned);
  LaunchLogprobs(stream_, launch);
  return absl::OkStatus();
}

absl::Status CudaTokenSampler::MakeRoom(size_t bytes, LogprobsCall* call) {
  if (bytes <= call->bytes) return absl::OkStatus();
  size_t room = std::max(bytes, 2 * call->bytes);
  absl::StatusOr<std::byte*> pinned = runtime_.AllocatePinned(room);
  if (!pinned.ok() && room > bytes) pinned = runtime_.AllocatePinned(room = bytes);
  if (!pinned.ok()) return pinned.status();  // what there is stays
  if (call->pinned != nullptr) runtime_.FreePinned(call->pinned);
  *call = {*pinned, room, 0};
  return absl::OkStatus();
}

absl::Status CudaTokenSampler::EndStep() {
  assert(num_ended_ - num_awaited_ < ended_.size());
  Ended& ended = current();
  failure_.KeepRefusal(stream_);
  if (failure_.none()) failure_.Keep(runtime_.MakeCurrent());
  if (failure_.none()) LaunchCopySmall(stream_, {ended.tokens, sampled_.data(), bytes()});
  failure_.KeepRefusal(stream_);
  if (failure_.none()) failure_.Keep(runtime_.Record(*ended.copied, stream_));
  if (stream_.failure().has_value()) {
    failure_.KeepOfDevice(absl::InternalError(*stream_.failure()));
  }
  absl::Status status = failure_.Take();
  if (!status.ok()) {
    // Kernels of the step may still read what they were asked for.
    if (ended.num_calls > 0) runtime_.Synchronize(stream_).IgnoreError();
    ended.num_calls = 0;
    return status;
  }
  ++num_ended_;
  clock_.StepEnds();
  return absl::OkStatus();
}

absl::StatusOr<SampledStep> CudaTokenSampler::AwaitStep() {
  assert(num_awaited_ < num_ended_);
  Ended& ended = ended_[num_awaited_++ % ended_.size()];
  told_.clear();
  while (told_.size() < ended.num_calls) {
    const LogprobsCall& call = ended.calls[told_.size()];
    told_.emplace_back(reinterpret_cast<const LogprobEntry*>(call.pinned), call.entries);
  }
  ended.num_calls = 0;
  clock_.StepAwaited();
  const absl::Status waited = runtime_.Synchronize(*ended.copied);
  if (!waited.ok()) {
    failure_.KeepOfDevice(waited);
    return failure_.Take();
  }
  clock_.HostReturns();
  return SampledStep{
      {reinterpret_cast<const int32_t*>(ended.tokens), static_cast<size_t>(options_.num_slots)},
      told_};
}

}  // namespace refrain::kernels::cuda
