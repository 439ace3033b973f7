#ifndef REFRAIN_KERNELS_OPS_H_
#define REFRAIN_KERNELS_OPS_H_

#include <cstdint>
#include <span>

#include "kernels/attention_args.h"
#include "kernels/tensor_view.h"

// Arguments of the operations that a decoder layer is made of. One struct by value per operation:
// sizes, inputs, outputs. Pointers are into the back end's memory. Rows are tokens of any number of
// sequences, concatenated.

namespace refrain::kernels {

class LinearWeight;

// In place of a token: the newest one of this slot, which the host need not know.
constexpr int32_t IdOfSlot(int32_t slot) { return -1 - slot; }
constexpr int32_t TokenOf(int32_t id, const int32_t* sampled) {
  return id < 0 && sampled != nullptr ? sampled[-1 - id] : id;
}

struct EmbedArgs {
  const LinearWeight* table = nullptr;  // [vocab, hidden], packed for embedding
  std::span<const int32_t> ids;         // [rows], each in [0, vocab), or an IdOfSlot
  TensorView out;                       // [rows, hidden]
  // What ids of slots stand for: [slots], as TokenSampler has it; of -1 nothing is written. Null:
  // all ids are tokens.
  const int32_t* sampled = nullptr;
};

// out[i] = x[r] / sqrt(mean(x[r]^2) + eps) * weight, with r = row_indexes[i], or i when empty. A
// row of several groups (heads) is as many vectors, each normalised by itself with the same weight.
// Out may be x.
struct RmsNormArgs {
  double eps = 0;
  TensorView x;                          // [x_rows, hidden]
  const float* weight = nullptr;         // [hidden / groups]
  std::span<const int32_t> row_indexes;  // [rows] or empty
  TensorView out;                        // [rows, hidden]
  int groups = 1;
  // A product with this weight is what reads `out` next, so that a back end may leave it in that
  // one's form, too. Null: something else does.
  const LinearWeight* reader = nullptr;
};

// out = x W^T, or out += x W^T when `accumulate` (the residual add).
struct LinearArgs {
  const LinearWeight* weight = nullptr;  // [n, k]
  TensorView x;                          // [rows, k]
  TensorView out;                        // [rows, n]
  bool accumulate = false;
  bool reproducible = false;  // one arithmetic per weight, whatever the number of rows
  // [rows], or empty: 1 for rows that a back end may compute with activations of 8 bits, or in
  // bf16. What a row is computed with hangs on its own flag and, where many rows go to tiles, on
  // how many there are and on those beside it, which may make it more exact. Empty if reproducible.
  std::span<const uint8_t> coarse_rows;
};

// out[r] = the index of the greatest element of row r of what Linear would compute (reproducible),
// the lowest of equal ones, those left out that are excluded; or kUndecided where the back end
// could not tell without computing them all.
struct LinearArgMaxArgs {
  static constexpr int32_t kUndecided = -1;
  // An element that does not count.
  struct Excluded {
    int32_t row;    // [0, rows)
    int32_t index;  // [0, n)
  };

  const LinearWeight* weight = nullptr;  // [n, k], packed for argmax
  TensorView x;                          // [rows, k]
  std::span<int32_t> out;                // [rows], in the host's memory, valid on return
  std::span<const Excluded> excluded;    // few a row; ascending by row; in the host's memory
};

// out = silu(x Wg^T) * (x Wu^T).
struct GateUpArgs {
  const LinearWeight* gate = nullptr;  // [ffn, hidden]
  const LinearWeight* up = nullptr;    // [ffn, hidden]
  TensorView x;                        // [rows, hidden]
  TensorView out;                      // [rows, ffn]
  bool reproducible = false;
  std::span<const uint8_t> coarse_rows;  // as LinearArgs
  // Linear with this weight and the same coarse_rows comes next and alone reads `out`: a back end
  // may keep what belongs there in a form of its own, and leave anything in `out`. Null: others do.
  const LinearWeight* reader = nullptr;
};

// Angles of rotary embedding: cos and sin for every position, made once in double precision.
struct RopeTable {
  const float* cos = nullptr;  // [max_positions, rope_dim / 2]
  const float* sin = nullptr;  // [max_positions, rope_dim / 2]
  int32_t max_positions = 0;
  int rope_dim = 0;  // <= head_dim; elements from rope_dim on are not rotated; 0: none is
};

// Where a new token's K and V go. A row that only reads again what is cached (its K and V are in a
// chunk that others share) goes nowhere.
struct KvSlotRef {
  int32_t chunk;   // below 0: nowhere
  int32_t offset;  // token inside the chunk; not read when the row goes nowhere
};
inline constexpr KvSlotRef kWriteNowhere = {-1, 0};

// Rotates q and k in place (half-split pairs (i, i + rope_dim / 2)) by each row's position, and
// writes k and v into the chunks. Where an element of a token's k or v is no finite number in
// kv.dtype, all of its v (of that KV head) are zeros and all of its k NaN: attention multiplies
// rows by the keys that they do not see with weights of 0, which makes NaN of anything else, and
// rows that see this one are NaN by its score. Of an infinite k the score might be -infinity, which
// is that of a key that a row does not see.
struct RopeAppendArgs {
  int layer = 0;
  int num_heads = 0;
  TensorView qkv;                      // [rows, (num_heads + 2 * num_kv_heads) * head_dim]
  std::span<const int32_t> positions;  // [rows], each < table.max_positions
  RopeTable table;
  std::span<const KvSlotRef> destinations;  // [rows]
  KvPoolView kv;
};

// x = silu(gate) * up; x += y. The fused forms above are what a layer uses; these serve layers that
// cannot fuse.
struct SwiGluArgs {
  TensorView gate, up, out;  // [rows, ffn]
};
struct AddArgs {
  TensorView x, y;  // [rows, hidden]; y's stride may be 0: a bias
};

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_OPS_H_
