#ifndef REFRAIN_KERNELS_CPU_ATTENTION_KERNELS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/softmax_state.h"

// What attention.cc asks of one instruction-set level. Included by files of every level, so it
// holds declarations and plain structs only.
namespace refrain::kernels::cpu {

// Consecutive keys of one sequence inside one chunk.
struct KeyPiece {
  const std::byte* k;  // the chunk's keys and values of layer 0, KV head 0, in the pool's packing
  const std::byte* v;
  const int32_t* positions;  // of the chunk's tokens; null without a window
  int32_t token;             // of the first key, inside the chunk
  int32_t begin;             // its key index
  int32_t count;
};

enum class KvElementType : uint8_t { kF32, kF16, kBF16Pairs };

// Query rows of one task at most, but for a group of more heads: their scores over one segment stay
// in the L2 cache.
inline constexpr int kMaxTaskRows = 192;
// Longest segment.
inline constexpr int kMaxSegmentKeys = 512;
// Keys per tile of the widened copies. Rows of K tiles are longer, vectors may run over the end.
inline constexpr int kTileKeys = 64;
inline constexpr int kKeyTileStride = kTileKeys + 16;
inline constexpr int kScoreStride = kMaxSegmentKeys + 16;

// Rounded rows of q are padded to whole AMX tiles.
inline constexpr int kQueryPadElements = 32;

// Attention of `num_rows` query rows to the keys [begin, hi) of one segment and one KV head.
//
// The arithmetic of a row is the same whatever rows it is batched with: each score is one chain of
// fused multiply-adds over the head dimension, exponentials are summed in an order given by key
// index minus segment_begin, each output element is one chain over the keys in key order. Keys that
// a row does not see contribute nothing, and values outside [begin, hi) are never multiplied.
//
// With bf16 dot instructions, rows over K and V in bf16 are rounded to bf16 too, q as it comes and
// weights before they are summed up, and a link of the chains is one pair: of elements 2i and 2i +
// 1 of the head, of keys 2j and 2j + 1 counted from segment_begin.
//
// With dot products of words, and unless `any_row_count`, many rows over K and V in f16 or bf16 are
// computed with integers (attention_words.h): what a row rounds then hangs on the keys beside its
// own in a tile, too. With AMX tiles and unless `any_row_count`, many rows over K and V in bf16
// round as they do for all rows of their block (attention_amx_weights.h).
struct SegmentArgs {
  // sizes
  KvElementType type;
  int head_dim;
  int chunk_tokens;
  int num_rows;
  bool any_row_count;  // the arithmetic may not depend on num_rows (always so but with AMX tiles
                       // and with words)
  // keys
  const KeyPiece* pieces;      // from the one that holds key `begin` on
  const KeyPiece* pieces_end;  // what lies from `hi` on is fetched into the cache, not used
  KeyPiece behind;             // and this behind all pieces, as if of this KV head; k may be null
  bool ahead_to_first_level;  // whether few rows had better ask the first-level cache for what they
                              // read soon, not the second
  size_t head_offset;         // bytes from what the pieces point to, to this layer and KV head
  int32_t segment_begin;      // scores are kept by key index minus this
  int32_t begin;              // first key that is read
  int32_t hi;                 // behind the last key that any row sees
  // rows
  const float* q;  // [num_rows, q_stride], scaled so that scores are in units of ln 2
  int64_t q_stride;
  const int32_t* row_limits;  // [num_rows] ascending: row r sees keys below row_limits[r]
  const int32_t* row_oldest;  // [num_rows] row r sees positions above this; null without a window
  const int32_t* positions;   // by key index minus segment_begin; null without a window
  // scratch; what has num_rows rows has memory for whole tiles of 16
  float* scores;   // [num_rows, kScoreStride]
  float* k_tile;   // [16 or head_dim, kKeyTileStride]
  float* v_tile;   // [kTileKeys, o_stride]
  float* q_pairs;  // [num_rows, head_dim / 2, padded], for q in bf16; null where no level uses it
  float* v_pairs;  // [kMaxSegmentKeys / 2, o_stride], for V in bf16 pairs; null likewise
  // outputs
  SoftmaxState* states;  // [num_rows]
  float* o;  // [num_rows, o_stride], anything where the state is empty; o_stride is head_dim up to
             // a multiple of 16
  int64_t o_stride;
};

// Keys or values in E4M3 that become pairs of bf16: out[r][i] is that of even[r * stride + i], with
// that of odd[r * stride + i] in the upper half. Exact; NaN stays NaN.
struct E4m3Rows {
  const uint8_t* even;
  const uint8_t* odd;
  int64_t stride;  // of both
  int rows;
  int count;             // elements of even, and of odd, in a row
  const uint8_t* ahead;  // [rows * stride] fetched into the cache, not used
  uint32_t* out;         // [rows, out_stride]
  int64_t out_stride;
};

// In these states m is in units of ln 2, as the scores are: a weight is 2^(s - m).
struct AttentionKernels {
  bool uses_pairs;                    // asks for q_pairs and v_pairs
  bool shares_by_keys;                // AttentionTasks::Plan's argument
  bool ahead_to_first_level = false;  // SegmentArgs'
  void (*segment)(const SegmentArgs& args);
  // Merges `right` into `left` (SoftmaxState's algebra, with this level's exponential).
  void (*merge)(SoftmaxState& left, float* left_o, const SoftmaxState& right, const float* right_o,
                int head_dim);
  // out = o / n, zeros for the empty state.
  void (*finish)(const SoftmaxState& state, const float* o, float* out, int head_dim);
  // out = x * scale
  void (*scale)(const float* x, float scale, float* out, int n);
  void (*widen_e4m3)(const E4m3Rows& rows);
};

AttentionKernels PortableAttentionKernels();
AttentionKernels Avx2AttentionKernels();
AttentionKernels Avx512AttentionKernels();
// Those of kAvx512 but of many rows over K and V in f16 and bf16.
AttentionKernels Avx512VnniAttentionKernels();
// Their segment, bit for bit, on a processor that has AVX-512 FP16 as well.
void Avx512VnniFp16Segment(const SegmentArgs& args);
AttentionKernels Avx512Bf16AttentionKernels();  // those of kAvx512Vnni but over K and V in bf16
AttentionKernels AmxAttentionKernels();         // and AMX tiles where rows are many

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_KERNELS_H_
