#include "engine/kv_storage.h"

#include <cassert>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

kernels::DType DTypeOf(kvcache::KvElement element) {
  switch (element) {
    case kvcache::KvElement::kF32:
      return kernels::DType::kF32;
    case kvcache::KvElement::kF16:
      return kernels::DType::kF16;
    case kvcache::KvElement::kBF16:
      return kernels::DType::kBF16;
    case kvcache::KvElement::kF8E4M3:
      return kernels::DType::kF8E4M3;
  }
  return kernels::DType::kF32;
}

kvcache::KvPackingTag TagOf(kernels::KvPacking packing) {
  switch (packing) {
    case kernels::KvPacking::kTransposedK:
      return kvcache::KvPackingTag::kTransposedK;
    case kernels::KvPacking::kPairs:
      return kvcache::KvPackingTag::kPairs;
    case kernels::KvPacking::kSwizzledRows:
      break;
  }
  return kvcache::KvPackingTag::kSwizzledRows;
}

kernels::KvPacking PackingOf(kvcache::KvPackingTag tag) {
  switch (tag) {
    case kvcache::KvPackingTag::kTransposedK:
      return kernels::KvPacking::kTransposedK;
    case kvcache::KvPackingTag::kPairs:
      return kernels::KvPacking::kPairs;
    case kvcache::KvPackingTag::kSwizzledRows:
      break;
  }
  return kernels::KvPacking::kSwizzledRows;
}

}  // namespace

absl::StatusOr<kvcache::KvLayout> KvLayoutFor(const ModelConfig& config,
                                              const kernels::BackendInfo& backend,
                                              kernels::DType dtype, int32_t chunk_tokens) {
  kvcache::KvDimensions dimensions{.num_layers = config.num_layers,
                                   .num_kv_heads = config.num_kv_heads,
                                   .head_dim = config.head_dim,
                                   .chunk_tokens = chunk_tokens,
                                   .packing = TagOf(backend.kv_packing(dtype))};
  switch (dtype) {
    case kernels::DType::kF32:
      dimensions.element = kvcache::KvElement::kF32;
      break;
    case kernels::DType::kF16:
      dimensions.element = kvcache::KvElement::kF16;
      break;
    case kernels::DType::kBF16:
      dimensions.element = kvcache::KvElement::kBF16;
      break;
    case kernels::DType::kF8E4M3:
      dimensions.element = kvcache::KvElement::kF8E4M3;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("KV cannot be kept as ",
                                                     std::string(kernels::Traits(dtype).name),
                                                     "; valid: f32, f16, bf16, fp8_e4m3"));
  }
  return kvcache::KvLayout::Create(dimensions);
}

absl::StatusOr<std::unique_ptr<KvStorage>> KvStorage::Create(kernels::Device& device,
                                                             const kvcache::KvLayout& layout,
                                                             int32_t num_chunks) {
  const size_t bytes = layout.chunk_bytes() * static_cast<size_t>(num_chunks);
  absl::StatusOr<kernels::DeviceBuffer> buffer = device.Allocate(bytes, true);
  if (!buffer.ok()) return buffer.status();
  const size_t alignment = bytes >= kvcache::KvLayout::kPoolAlignmentBytes
                               ? kvcache::KvLayout::kPoolAlignmentBytes
                               : kvcache::KvLayout::kLayerAlignmentBytes;
  if (reinterpret_cast<uintptr_t>(buffer->data()) % alignment != 0) {
    return absl::InternalError(absl::StrCat("the device's memory for the KV cache, ", bytes,
                                            " bytes at 0x",
                                            absl::Hex(reinterpret_cast<uintptr_t>(buffer->data())),
                                            ", is not aligned to ", alignment, " bytes"));
  }
  return std::unique_ptr<KvStorage>(new KvStorage(device, layout, *std::move(buffer)));
}

kernels::KvPoolView KvViewOf(const kvcache::KvLayout& layout) {
  const kvcache::KvDimensions& dimensions = layout.dimensions();
  return {.chunk_bytes = layout.chunk_bytes(),
          .layer_bytes = layout.layer_bytes(),
          .head_bytes = layout.head_bytes(),
          .v_offset_bytes = layout.v_offset_bytes(),
          .dtype = DTypeOf(dimensions.element),
          .packing = PackingOf(dimensions.packing),
          .chunk_tokens = dimensions.chunk_tokens,
          .num_kv_heads = dimensions.num_kv_heads,
          .head_dim = dimensions.head_dim};
}

kernels::KvPoolView KvStorage::View(const int32_t* positions) const {
  kernels::KvPoolView view = KvViewOf(layout_);
  view.base = buffer_.data();
  view.positions = positions;
  return view;
}

absl::Status KvStorage::CopyBytes(kvcache::ChunkId from, kvcache::ChunkId to, size_t offset,
                                  size_t bytes) {
  assert(offset + bytes <= layout_.chunk_bytes());
  return device_.Copy(buffer_.data() + ToIndex(to) * layout_.chunk_bytes() + offset,
                      buffer_.data() + ToIndex(from) * layout_.chunk_bytes() + offset, bytes);
}

}  // namespace refrain::engine
