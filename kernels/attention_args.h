#ifndef REFRAIN_KERNELS_ATTENTION_ARGS_H_
#define REFRAIN_KERNELS_ATTENTION_ARGS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/dtype.h"
#include "kernels/tensor_view.h"

namespace refrain::kernels {

// How K and V of one chunk and layer lie in memory. A property of the back end, one packing per
// dtype there, the same at every instruction-set level (it is part of a stored chunk's
// fingerprint). c = chunk_tokens, d = head_dim, per KV head:
//   kTransposedK   K [d][c], V [c][d]            lanes of a K vector are tokens: scores come out as
//                                                vectors; lanes of a V vector are output elements.
//   kPairs         K [d/2][c][2], V [c/2][d][2]  the same, in pairs for bf16 dot instructions.
//   kSwizzledRows  K and V as rows of tokens in panels, whose 16-byte units are exchanged as a
//                  GPU's matrix instructions want them: kernels/cuda/kv_packing.h.
enum class KvPacking : uint8_t { kTransposedK, kPairs, kSwizzledRows };

// The packing of back ends that run on the host.
constexpr KvPacking HostPackingOf(DType kv_dtype) {
  return kv_dtype == DType::kBF16 ? KvPacking::kPairs : KvPacking::kTransposedK;
}

// Where chunks are. Chunk i, layer l, KV head h:
//   K at base + i * chunk_bytes + l * layer_bytes + h * head_bytes,  V at the same +
//   v_offset_bytes.
struct KvPoolView {
  std::byte* base = nullptr;
  size_t chunk_bytes = 0;
  size_t layer_bytes = 0;     // K and V of one layer, padded to 4,096
  size_t head_bytes = 0;      // chunk_tokens * head_dim * element size
  size_t v_offset_bytes = 0;  // num_kv_heads * head_bytes
  DType dtype = DType::kF16;
  KvPacking packing = KvPacking::kTransposedK;
  int chunk_tokens = 64;  // multiple of 16
  int num_kv_heads = 0;
  int head_dim = 0;  // even, 8 to 256
  // [num_chunks, chunk_tokens] position of each token; read only where a window is set.
  const int32_t* positions = nullptr;

  constexpr std::byte* Keys(int32_t chunk, int layer, int kv_head) const {
    return base + chunk * chunk_bytes + layer * layer_bytes + kv_head * head_bytes;
  }
  constexpr std::byte* Values(int32_t chunk, int layer, int kv_head) const {
    return Keys(chunk, layer, kv_head) + v_offset_bytes;
  }
  friend constexpr bool operator==(const KvPoolView&, const KvPoolView&) = default;
};

// --- The attention plan: structure without lengths, rebuilt only when the tree changed ---
//
// A run is a list of chunks, in order of computation, that a list of slots attends to. Key indexes
// count a slot's own keys from its start; a module's chunks may stand at different key indexes for
// different slots, so they are given per (run, slot). The runs of one slot cover [0, its length)
// without gap or overlap.

struct RunChunk {
  int32_t chunk;        // index into the pool
  int32_t token_begin;  // tokens of this run before this chunk; the chunk's own tokens end where
                        // the next chunk of the run begins (the last: open, up to chunk_tokens)
};

inline constexpr int32_t kOpenEnd = std::numeric_limits<int32_t>::max();

struct RunSlot {
  int32_t slot;
  int32_t key_begin;  // key index, in this slot's sequence, of the run's first token
  int32_t key_end;    // the slot attends to the run's tokens up to here; kOpenEnd = to its length
};

struct AttentionRun {
  int32_t chunk_begin, chunk_end;  // into AttentionPlanView::chunks
  int32_t slot_begin, slot_end;    // into AttentionPlanView::slots
};

struct AttentionPlanView {
  std::span<const AttentionRun> runs;  // any order; per slot, key_begin ascends with run index
  std::span<const RunChunk> chunks;
  std::span<const RunSlot> slots;
};

// What changes every step, one entry per slot number. New tokens are already in the chunks: row i
// of the slot's `num_rows` rows is key index key_end - num_rows + i and attends to the keys from
// key_begin up to and including itself (causal by order of computation; positions are arbitrary).
struct SlotStep {
  int32_t num_rows = 0;   // 0: the slot takes no part in this step
  int32_t row_begin = 0;  // first row in q and out
  int32_t key_begin = 0;  // keys before this index are outside every row's window
  int32_t key_end = 0;    // keys of the slot including the new ones
};

enum class AttentionMode : uint8_t { kTwoPhase, kPaged };

struct ChunkAttentionArgs {
  // sizes
  int layer = 0;
  int num_heads = 0;      // a multiple of kv.num_kv_heads; head h uses KV head h / group
  int window_tokens = 0;  // 0 = none; else key j is seen by row i iff pos_i - pos_j < window
  float scale = 0.0f;     // 1 / sqrt(head_dim)
  AttentionMode mode = AttentionMode::kTwoPhase;
  bool reproducible = false;  // segments of 512 keys, merged left to right (DESIGN section 5)
  // inputs
  KvPoolView kv;
  AttentionPlanView plan;
  std::span<const SlotStep> steps;  // [num_slots]
  // `steps` without rows that nobody reads `out` of, the first of a slot or all; empty: every row
  // is read. What becomes of the others' `out` is up to the back end.
  std::span<const SlotStep> wanted;
  TensorView q;                            // [num_rows, num_heads * head_dim], rotated
  const int32_t* row_positions = nullptr;  // [num_rows]; read only where a window is set
  // output
  TensorView out;  // [num_rows, num_heads * head_dim]
};

inline constexpr int kSegmentKeys = 512;

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_ATTENTION_ARGS_H_
