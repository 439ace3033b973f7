#ifndef REFRAIN_KVCACHE_KV_LAYOUT_H_
#define REFRAIN_KVCACHE_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace refrain::kvcache {

// Element types that K and V may be stored as, and the order of the elements inside a chunk: that
// of the back end for this element type, the same at every instruction-set level, part of a stored
// chunk's fingerprint. Here only a name.
enum class KvElement : uint8_t { kF32, kF16, kBF16, kF8E4M3 };
enum class KvPackingTag : uint8_t { kTransposedK, kPairs, kSwizzledRows };

constexpr size_t ElementBytes(KvElement element) {
  return element == KvElement::kF32 ? 4 : element == KvElement::kF8E4M3 ? 1 : 2;
}

struct KvDimensions {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;       // even, 8 to 256
  int32_t chunk_tokens = 64;  // a multiple of 16
  KvElement element = KvElement::kF16;
  KvPackingTag packing = KvPackingTag::kTransposedK;
};

// Where the bytes of a chunk are (DESIGN 4.9):
//
//   chunk = [num_layers] of { K [num_kv_heads][chunk_tokens * head_dim],
//                             V [num_kv_heads][chunk_tokens * head_dim], padding to 4,096 bytes }
//
// so that one layer of one chunk is one aligned range: the unit of transfer between tiers. A value;
// knows sizes and offsets, neither addresses nor what a float is. Create refuses dimensions that no
// kernel takes, naming the one that is wrong.
class KvLayout {
 public:
  static constexpr size_t kLayerAlignmentBytes = 4096;
  static constexpr size_t kPoolAlignmentBytes = size_t{2} << 20;  // of one that is as large

  static absl::StatusOr<KvLayout> Create(const KvDimensions& dimensions);

  const KvDimensions& dimensions() const { return dimensions_; }
  KvPackingTag packing() const { return dimensions_.packing; }

  size_t head_bytes() const { return head_bytes_; }                    // K or V of one head
  size_t v_offset_bytes() const { return num_heads() * head_bytes_; }  // from K to V of a head
  size_t layer_bytes() const { return layer_bytes_; }                  // K and V of a layer, padded
  size_t chunk_bytes() const { return num_layers() * layer_bytes_; }

  size_t KeyOffset(int32_t layer, int32_t kv_head) const {
    return static_cast<size_t>(layer) * layer_bytes_ + static_cast<size_t>(kv_head) * head_bytes_;
  }
  size_t ValueOffset(int32_t layer, int32_t kv_head) const {
    return KeyOffset(layer, kv_head) + v_offset_bytes();
  }

 private:
  explicit KvLayout(const KvDimensions& dimensions);

  size_t num_layers() const { return static_cast<size_t>(dimensions_.num_layers); }
  size_t num_heads() const { return static_cast<size_t>(dimensions_.num_kv_heads); }

  KvDimensions dimensions_;
  size_t head_bytes_;
  size_t layer_bytes_;
};

}  // namespace refrain::kvcache

#endif  // REFRAIN_KVCACHE_KV_LAYOUT_H_
