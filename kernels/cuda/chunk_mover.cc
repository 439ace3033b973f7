#include "kernels/cuda/chunk_mover.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace refrain::kernels::cuda {

ChunkMove::ChunkMove(ChunkMover* mover, std::span<const ChunkPlaces> chunks, bool load)
    : mover_(mover), chunks_(chunks.begin(), chunks.end()), failed_(chunks.size()), load_(load) {
  layer_moved_.reserve(mover->shape_.num_layers);
}

ChunkMove::~ChunkMove() {
  // Also where a save was left with layers that were never written.
  if (!layer_moved_.empty()) (void)mover_->runtime_.Synchronize(*layer_moved_.back());
  for (auto& event : layer_moved_) mover_->free_events_.push_back(std::move(event));
}

Stream& ChunkMove::stream() const { return load_ ? *mover_->load_stream_ : *mover_->save_stream_; }

ChunkMove::State ChunkMove::Poll() {
  if (state_ != State::kMoving || layers_begun_ < mover_->shape_.num_layers) return state_;
  const absl::StatusOr<bool> passed = mover_->runtime_.HasPassed(*layer_moved_.back());
  if (!passed.ok()) {
    Fail(passed.status());
  } else if (*passed) {
    state_ = State::kDone;
  }
  return state_;
}

ChunkMove::State ChunkMove::Wait() {
  // A failure to wait is one of the device, which Poll meets too.
  if (!layer_moved_.empty()) (void)mover_->runtime_.Synchronize(*layer_moved_.back());
  return Poll();
}

size_t ChunkMove::num_failed() const {
  return static_cast<size_t>(std::count(failed_.begin(), failed_.end(), 1));
}

absl::Status ChunkMove::UseLayer(int layer, Stream& compute) {
  assert(load_ && layer >= 0 && layer < layers_begun_);
  return mover_->runtime_.WaitFor(*layer_moved_[layer], compute);
}

absl::Status ChunkMove::LayerWritten(int layer, Stream& compute) {
  if (state_ == State::kFailed) return status_;
  assert(!load_ && layer == layers_begun_);
  absl::Status status = mover_->Follow(*mover_->save_stream_, compute);
  if (status.ok()) return MoveLayer(layer);
  // A layer that cannot follow what wrote it comes never.
  Fail(status);
  return status;
}

absl::Status ChunkMove::MoveAllLayers() {
  for (int layer = 0; layer < mover_->shape_.num_layers; ++layer) {
    absl::Status status = MoveLayer(layer);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ChunkMove::MoveLayer(int layer) {
  CopyLayer(layer);
  absl::Status status = RecordLayer();
  // Without its event nobody could tell when this layer has arrived.
  if (!status.ok()) Fail(status);
  return status;
}

void ChunkMove::Fail(const absl::Status& status) {
  state_ = State::kFailed;
  status_ = status;
  std::fill(failed_.begin(), failed_.end(), 1);
  (void)mover_->runtime_.Synchronize(stream());
}

void ChunkMove::CopyLayer(int layer) {
  for (size_t first = 0, count; first < chunks_.size(); first += count) {
    count = StretchFrom(first);
    if (count == 0) {
      count = 1;  // failed before
      continue;
    }
    // A stretch that is refused as a whole, as one over several blocks of memory is, goes by
    // pieces.
    if (count > 1 && CopyStretch(first, count, layer).ok()) continue;
    for (size_t i = first; i < first + count; ++i) {
      const absl::Status status = CopyStretch(i, 1, layer);
      if (status.ok()) continue;
      failed_[i] = 1;
      status_.Update(status);
    }
  }
}

size_t ChunkMove::StretchFrom(size_t first) const {
  const auto apart = [this](size_t i) {
    return std::pair(chunks_[i + 1].device - chunks_[i].device,
                     chunks_[i + 1].host - chunks_[i].host);
  };
  const auto fits = [this](ptrdiff_t pitch) {
    return pitch >= static_cast<ptrdiff_t>(mover_->shape_.layer_bytes) &&
           pitch <= static_cast<ptrdiff_t>(Runtime::kMaxPitch);
  };
  size_t end = first;
  while (end < chunks_.size() && failed_[end] == 0) {
    ++end;
    if (end == chunks_.size()) break;
    const auto [device, host] = apart(first);
    if (!fits(device) || !fits(host) || apart(end - 1) != apart(first)) break;
  }
  return end - first;
}

absl::Status ChunkMove::CopyStretch(size_t first, size_t count, int layer) {
  const size_t bytes = mover_->shape_.layer_bytes;
  std::byte* const device = chunks_[first].device + layer * bytes;
  std::byte* const host = chunks_[first].host + layer * bytes;
  std::byte* const to = load_ ? device : host;
  const std::byte* const from = load_ ? host : device;
  if (count == 1) return mover_->runtime_.CopyAsync(to, from, bytes, stream());
  const size_t device_pitch = chunks_[first + 1].device - chunks_[first].device;
  const size_t host_pitch = chunks_[first + 1].host - chunks_[first].host;
  return mover_->runtime_.CopyRowsAsync(to, load_ ? device_pitch : host_pitch, from,
                                        load_ ? host_pitch : device_pitch, bytes, count, stream());
}

absl::Status ChunkMove::RecordLayer() {
  absl::StatusOr<std::unique_ptr<Event>> event = mover_->TakeEvent();
  if (!event.ok()) return event.status();
  absl::Status status = mover_->runtime_.Record(**event, stream());
  if (!status.ok()) return status;
  layer_moved_.push_back(*std::move(event));
  ++layers_begun_;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ChunkMover>> ChunkMover::Create(Runtime& runtime,
                                                               const Shape& shape) {
  std::unique_ptr<ChunkMover> mover(new ChunkMover(runtime, shape));
  for (std::unique_ptr<Stream>* stream : {&mover->load_stream_, &mover->save_stream_}) {
    absl::StatusOr<std::unique_ptr<Stream>> made = runtime.CreateStream(StreamPriority::kNormal);
    if (!made.ok()) return made.status();
    *stream = *std::move(made);
  }
  absl::StatusOr<std::unique_ptr<Event>> event = runtime.CreateEvent();
  if (!event.ok()) return event.status();
  mover->followed_ = *std::move(event);
  return mover;
}

absl::StatusOr<std::unique_ptr<ChunkMove>> ChunkMover::Load(std::span<const ChunkPlaces> chunks,
                                                            Stream& compute) {
  absl::Status status = Follow(*load_stream_, compute);
  if (!status.ok()) return status;
  std::unique_ptr<ChunkMove> move(new ChunkMove(this, chunks, /*load=*/true));
  status = move->MoveAllLayers();
  if (!status.ok()) return status;
  return move;
}

absl::StatusOr<std::unique_ptr<ChunkMove>> ChunkMover::SaveLayerByLayer(
    std::span<const ChunkPlaces> chunks) {
  return std::unique_ptr<ChunkMove>(new ChunkMove(this, chunks, /*load=*/false));
}

absl::StatusOr<std::unique_ptr<ChunkMove>> ChunkMover::Save(std::span<const ChunkPlaces> chunks,
                                                            Stream& compute) {
  absl::Status status = Follow(*save_stream_, compute);
  if (!status.ok()) return status;
  std::unique_ptr<ChunkMove> move(new ChunkMove(this, chunks, /*load=*/false));
  status = move->MoveAllLayers();
  if (!status.ok()) return status;
  return move;
}

absl::Status ChunkMover::Follow(Stream& to, Stream& from) {
  absl::Status status = runtime_.Record(*followed_, from);
  if (!status.ok()) return status;
  return runtime_.WaitFor(*followed_, to);
}

absl::StatusOr<std::unique_ptr<Event>> ChunkMover::TakeEvent() {
  if (free_events_.empty()) return runtime_.CreateEvent();
  std::unique_ptr<Event> event = std::move(free_events_.back());
  free_events_.pop_back();
  return event;
}

}  // namespace refrain::kernels::cuda
