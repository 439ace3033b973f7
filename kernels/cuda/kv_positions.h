#ifndef REFRAIN_KERNELS_CUDA_KV_POSITIONS_H_
#define REFRAIN_KERNELS_CUDA_KV_POSITIONS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/put_positions.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/step_arrays.h"
#include "kernels/ops.h"

namespace refrain::kernels::cuda {

// The positions of a KV pool's tokens in device memory, which windows are told by. They stay there
// from step to step, and the host knows what it has put there: so chunks are compared on the host,
// and only positions that differ are copied, whether a chunk was written on, copied or taken by
// another sequence. They are put there on the stream, behind what reads those of the step before.
//
//   table = positions.BringChunks(kv, plan.chunks);     // a plan that was not there before
//   table = positions.BringWritten(kv, destinations);   // the same plan, one step on
//
// The address stays while the pool's chunks that plans had so far fit. Threads and failure as
// UploadBuffer; what a failed call should have brought is brought by the next BringChunks.
class KvPositions {
 public:
  KvPositions(Runtime& runtime, Stream& stream, Device& device)
      : runtime_(runtime), stream_(stream), device_(device), upload_(runtime, stream, device) {}

  // Takes the memory that BringChunks of these chunks may need.
  absl::Status ReserveFor(const KvPoolView& kv, std::span<const RunChunk> chunks);

  // Makes the positions of these chunks' tokens what kv.positions has. Returns the table,
  // [num_chunks, chunk_tokens] as there, in device memory.
  absl::StatusOr<const int32_t*> BringChunks(const KvPoolView& kv,
                                             std::span<const RunChunk> chunks);
  // The same of the chunks that these tokens are in, but for chunks that were never brought.
  absl::StatusOr<const int32_t*> BringWritten(const KvPoolView& kv,
                                              std::span<const KvSlotRef> tokens);

 private:
  static constexpr int32_t kUnknown = -1;  // no token's position

  absl::Status Reserve(size_t tokens);
  void Compare(const KvPoolView& kv, int32_t chunk);
  absl::StatusOr<const int32_t*> Upload();

  Runtime& runtime_;
  Stream& stream_;
  Device& device_;
  DeviceBuffer table_;
  std::vector<int32_t> known_;          // what table_ holds behind what is on the stream
  std::vector<TokenPosition> changes_;  // in known_, not yet on the stream
  UploadBuffer upload_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_KV_POSITIONS_H_
