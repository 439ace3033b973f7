// What products of many rows ask the caches for while they multiply.
// For inclusion by the files of single instruction-set levels only: see quantized_kernels_inl.h,
// which says what V is and why.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_WEIGHTS_AHEAD_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_WEIGHTS_AHEAD_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"

namespace refrain::kernels::cpu {
namespace {

// Packed weights to ask the second-level cache for, `lines` of 64 bytes with every block.
struct LinesAhead {
  const uint8_t* p;
  int lines;
};

// What a stretch of kTiles tiles is unpacked from, asked for while the one before it is multiplied:
// unpacking alone waits for memory, and with few rows that is a tenth of the product and more.
// Asked for late, by the last groups of rows, since many rows' activations would push it out again.
template <class T, int kTiles>
class StretchAhead {
 public:
  // The stretch of tiles [tile, tile + kTiles) that begins at `block`; `groups` groups of rows pass
  // by before it, each over `group_blocks` blocks.
  StretchAhead(const QuantizedPanels& w, int64_t tile, int64_t block, int64_t blocks,
               int64_t groups, int group_blocks)
      : tile_bytes_(w.tile_bytes), group_blocks_(group_blocks) {
    // A whole tile lies in one piece. Of a part of one it is the quants; the scales, a fifth at
    // most, are left to the hardware, which has seen where they go on.
    const bool whole = blocks == w.blocks;
    begin_ = w.data + tile * w.tile_bytes + (whole ? 0 : w.scale_bytes + block * T::kQuantBytes);
    lines_ = (whole ? w.tile_bytes : blocks * T::kQuantBytes) / 64;
    const int64_t all = lines_ * kTiles;
    per_block_ = (all + groups * group_blocks - 1) / (groups * group_blocks);
    next_ = all - groups * per_block_ * group_blocks;
  }

  // What the next group of rows asks for.
  LinesAhead Take() {
    const int64_t at = next_;
    next_ += per_block_ * group_blocks_;
    if (at + per_block_ * group_blocks_ <= 0) return {begin_, 0};
    const int64_t line = at < 0 ? 0 : at;
    return {begin_ + line / lines_ * tile_bytes_ + line % lines_ * 64,
            static_cast<int>(per_block_)};
  }

 private:
  const uint8_t* begin_;
  int64_t tile_bytes_;
  int64_t lines_;      // of one tile
  int64_t per_block_;  // lines
  int64_t next_;       // line of all tiles; below 0 while it is too early
  int group_blocks_;
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_WEIGHTS_AHEAD_INL_H_
