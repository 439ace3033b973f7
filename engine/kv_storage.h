#ifndef REFRAIN_ENGINE_KV_STORAGE_H_
#define REFRAIN_ENGINE_KV_STORAGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "kernels/attention_args.h"
#include "kernels/device.h"

namespace refrain::engine {

// The bytes behind the chunk ids: one device allocation laid out as kvcache::KvLayout says, and the
// position of every cached token. Pages are touched when a chunk is first written. Knows nothing of
// who uses which chunk. Engine thread only.
class KvStorage {
 public:
  // RESOURCE_EXHAUSTED names the size.
  static absl::StatusOr<std::unique_ptr<KvStorage>> Create(kernels::Device& device,
                                                           const ModelConfig& config,
                                                           kernels::DType dtype, int chunk_tokens,
                                                           int32_t num_chunks);

  const kernels::KvPoolView& view() const { return view_; }
  int32_t num_chunks() const { return num_chunks_; }
  int32_t* positions() { return positions_.data(); }  // [num_chunks, chunk_tokens]

  // Copies all layers of a chunk, and its positions.
  absl::Status CopyChunk(int32_t from, int32_t to);

 private:
  KvStorage(kernels::Device& device, int32_t num_chunks)
      : device_(device), num_chunks_(num_chunks) {}

  kernels::Device& device_;
  int32_t num_chunks_;
  kernels::DeviceBuffer buffer_;
  std::vector<int32_t> positions_;
  kernels::KvPoolView view_;
};

// Bytes of one chunk of such a store.
size_t ChunkBytes(const ModelConfig& config, kernels::DType dtype, int chunk_tokens);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_KV_STORAGE_H_
