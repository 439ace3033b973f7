#ifndef REFRAIN_KERNELS_CUDA_CHUNK_MOVER_H_
#define REFRAIN_KERNELS_CUDA_CHUNK_MOVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime.h"

namespace refrain::kernels::cuda {

class ChunkMover;

// A chunk's bytes in the device's pool and their copy in pinned host memory: layers in order, each
// layer_bytes long, so that layer l is at l * layer_bytes in both.
struct ChunkPlaces {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
};

// Chunks on their way between device and host, layer by layer. Made by ChunkMover.
//
//   kMoving: copies are on the mover's stream. The move owns the bytes: neither side may be written
//            or freed.
//   kDone:   all copies have landed. The caller owns them again.
//   kFailed: the device is broken. The caller owns them; every chunk is a miss.
//
// A single copy that was refused does not fail the move: failed(i) is true from then on, chunk i is
// left out of what follows and counts as a miss (a step must not use it), the others go on.
class ChunkMove {
 public:
  enum class State : uint8_t { kMoving, kDone, kFailed };

  // Waits for what is under way, for the bytes are the caller's afterwards.
  ~ChunkMove();
  ChunkMove(const ChunkMove&) = delete;
  ChunkMove& operator=(const ChunkMove&) = delete;

  // Never waits. The status is the device's where the state is kFailed.
  State Poll();
  const absl::Status& status() const { return status_; }
  // The host waits until the move is done or failed.
  State Wait();

  bool failed(size_t chunk) const { return failed_[chunk] != 0; }
  size_t num_failed() const;

  // A load: what is put on `compute` from now on runs behind the arrival of `layer` (and of those
  // before it), and no later than that: the layers behind it are still on their way.
  absl::Status UseLayer(int layer, Stream& compute);

  // A save: what is on `compute` by now writes `layer` for the last time, so its copy may follow.
  // Every layer, in order. `compute` never waits for the copy.
  absl::Status LayerWritten(int layer, Stream& compute);

 private:
  friend class ChunkMover;
  ChunkMove(ChunkMover* mover, std::span<const ChunkPlaces> chunks, bool load);

  Stream& stream() const;
  absl::Status MoveAllLayers();
  absl::Status MoveLayer(int layer);
  void CopyLayer(int layer);
  absl::Status CopyStretch(size_t first, size_t count, int layer);
  size_t StretchFrom(size_t first) const;
  absl::Status RecordLayer();
  void Fail(const absl::Status& status);

  ChunkMover* mover_;
  std::vector<ChunkPlaces> chunks_;
  std::vector<uint8_t> failed_;  // [chunks]
  bool load_;
  int layers_begun_ = 0;
  std::vector<std::unique_ptr<Event>> layer_moved_;  // [layers_begun_]
  State state_ = State::kMoving;
  absl::Status status_;
};

// Moves chunks between the device's pool and pinned host memory beside the computation, which waits
// for nothing but the layers that it is about to read (DESIGN 4.9, 4.10; AttentionStore 3.2): loads
// and saves have a stream each, a layer of all chunks goes before the next layer of any. Chunks
// that follow each other equally far apart on both sides, as those allocated together do, go by one
// copy for each layer: started one by one, pieces of some 100 KiB would not fill the bus.
//
//   auto load = mover->Load(chunks, compute);              // and the prefill of what is new
//   for each layer: load->UseLayer(layer, compute); attention(layer); ...
//
// Knows bytes and streams; neither chunk ids nor tiers, nor whether the bytes are the right ones
// (checksums are the tiers' business). One thread at a time, moves included. Failure: a refused
// stream or event is returned; a refused copy makes its chunk a miss.
class ChunkMover {
 public:
  struct Shape {
    int num_layers = 0;
    size_t layer_bytes = 0;
  };

  // `runtime` outlives the mover, the mover its moves.
  static absl::StatusOr<std::unique_ptr<ChunkMover>> Create(Runtime& runtime, const Shape& shape);

  // Brings chunks from the host. Their places on the device are free as soon as what is on
  // `compute` now has run: the copies wait for that.
  absl::StatusOr<std::unique_ptr<ChunkMove>> Load(std::span<const ChunkPlaces> chunks,
                                                  Stream& compute);

  // Takes chunks to the host as their layers are written (ChunkMove::LayerWritten).
  absl::StatusOr<std::unique_ptr<ChunkMove>> SaveLayerByLayer(std::span<const ChunkPlaces> chunks);

  // Takes chunks that what is on `compute` now has finished.
  absl::StatusOr<std::unique_ptr<ChunkMove>> Save(std::span<const ChunkPlaces> chunks,
                                                  Stream& compute);

  const Shape& shape() const { return shape_; }

 private:
  friend class ChunkMove;
  ChunkMover(Runtime& runtime, const Shape& shape) : runtime_(runtime), shape_(shape) {}

  // `to` goes on behind what is on `from` now.
  absl::Status Follow(Stream& to, Stream& from);
  absl::StatusOr<std::unique_ptr<Event>> TakeEvent();

  Runtime& runtime_;
  Shape shape_;
  std::unique_ptr<Stream> load_stream_, save_stream_;
  std::unique_ptr<Event> followed_;
  std::vector<std::unique_ptr<Event>> free_events_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CHUNK_MOVER_H_
