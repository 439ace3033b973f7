#ifndef REFRAIN_ENGINE_KV_STORAGE_H_
#define REFRAIN_ENGINE_KV_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"
#include "kernels/attention_args.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "kvcache/kv_layout.h"
#include "kvcache/types.h"

namespace refrain::engine {

// The layout of a model's chunks on a back end.
absl::StatusOr<kvcache::KvLayout> KvLayoutFor(const ModelConfig& config,
                                              const kernels::BackendInfo& backend,
                                              kernels::DType dtype, int32_t chunk_tokens);

// How a pool of this layout is read, without memory or positions.
kernels::KvPoolView KvViewOf(const kvcache::KvLayout& layout);

// The bytes behind the chunk ids: one device allocation laid out as a KvLayout says. Pages are
// touched when a chunk is first written, or by Populate. Knows nothing of who uses which chunk.
// Engine thread only, but for Populate; the device outlives it.
class KvStorage {
 public:
  // RESOURCE_EXHAUSTED names the size; INTERNAL a device whose memory is not aligned as it promises
  // (a pool of 2 MiB and more to kPoolAlignmentBytes, as PagesAhead needs it).
  static absl::StatusOr<std::unique_ptr<KvStorage>> Create(kernels::Device& device,
                                                           const kvcache::KvLayout& layout,
                                                           int32_t num_chunks);

  const kvcache::KvLayout& layout() const { return layout_; }

  // `positions` [num_chunks, chunk_tokens] outlives the view.
  kernels::KvPoolView View(const int32_t* positions) const;

  // Lets the pages behind these bytes of the pool be there (kernels::Device::Populate). Any thread.
  bool Populate(size_t begin, size_t end) const {
    return device_.Populate(buffer_.data() + begin, end - begin);
  }

  // Copies these bytes of a chunk, which has all layers one behind the other. Where the device
  // allows it (kernels::Device), from several threads at once, to places of their own.
  absl::Status CopyBytes(kvcache::ChunkId from, kvcache::ChunkId to, size_t offset, size_t bytes);

 private:
  KvStorage(kernels::Device& device, const kvcache::KvLayout& layout, kernels::DeviceBuffer buffer)
      : device_(device), layout_(layout), buffer_(std::move(buffer)) {}

  kernels::Device& device_;
  kvcache::KvLayout layout_;
  kernels::DeviceBuffer buffer_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_KV_STORAGE_H_
