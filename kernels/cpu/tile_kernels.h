#ifndef REFRAIN_KERNELS_CPU_TILE_KERNELS_H_
#define REFRAIN_KERNELS_CPU_TILE_KERNELS_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"

// Products of many rows by AMX tiles of bf16: what a level with tiles gives to quantized_matrix.cc
// and dense_matrix.cc. Plain data, as quantized_kernels.h.

namespace refrain::kernels::cpu {

inline constexpr int kTileRows = 16;                      // of a group of rows
inline constexpr int kTileK = 32;                         // elements of k in one tile
inline constexpr int kTileElements = kTileRows * kTileK;  // 1 KiB

// Quantised weights are made greater by this much of themselves and then cut off to bf16, which
// takes fewer instructions than rounding: on average they are neither greater nor smaller than they
// were (where mantissas are as likely as their logarithms), off by a twentieth more than to nearest
// in the root of the mean of squares, and a bf16 number stays what it is.
inline constexpr float kWeightLift = 0x1.7p-9f;
// What that is off by at most, relative.
inline constexpr double kWeightError = 0x1.5p-8;

// Rows of activations as left operands. Group g is rows [16 g, 16 g + 16).
//
// x is rounded to bf16 (high). Of exact groups what that took away is kept, too (low): with both
// and two such terms of W a product has 15 bits and more, at three times the multiplications.
struct TileRows {
  int64_t rows = 0;
  int64_t steps = 0;               // k / 32, rounded up; x is zero from the true k on
  const uint16_t* high = nullptr;  // [groups, steps, 16, 32]
  const uint16_t* low = nullptr;   // the same, of exact groups only; null where there is none
  const uint8_t* exact = nullptr;  // [groups]; null: none is. Rows behind the last hold anything
};

// W as right operands: panels of 16 output columns, [panels][steps][16 pairs of k][16][2].
struct TilePanels {
  const uint16_t* high = nullptr;
  const uint16_t* low = nullptr;  // read for exact groups only; null: W is bf16 itself
  int64_t panel_elements = 0;     // from one panel to the next
};

// Which part of a product, and where it goes: out[r][t * 16 + i] (+)= sum_k x[r][k] w[t * 16 +
// i][k].
struct TileRange {
  int64_t row_begin = 0, row_end = 0;  // row_begin is a multiple of 16, row_end too but at the end
  int64_t tile_begin = 0, tile_end = 0;
  int64_t n = 0;         // columns at n and beyond are not written
  float* out = nullptr;  // row 0, column 0
  int64_t out_stride = 0;
  bool accumulate = false;
};

using MultiplyTilesFn = void (*)(const QuantizedPanels&, const TileRows&, const TileRange&);

struct TileKernels {
  // One row: high and low point to it in its group, steps lie 512 elements apart. `low` may be
  // null.
  void (*pack_row)(const float* x, int64_t k, uint16_t* high, uint16_t* low);
  // SwiGLU's silu(gate) up, [rows, 32] each, into one step of neighbouring rows of a group: high
  // points to it in the first. The bits of silu_mul and pack_row.
  void (*pack_swiglu)(const float* gate, const float* up, int64_t rows, uint16_t* high);
  // `w` points to panel 0.
  void (*dense)(const TilePanels& w, const TileRows& x, const TileRange& range);
  // By stored type. Weights are unpacked to w = high + low, high as kWeightLift says, low to
  // nearest and only for exact groups; sums are of 32 bits, in the order of amx_tiles.h, over
  // ascending k.
  MultiplyTilesFn q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k;
};

extern const TileKernels kTileKernelsAmx;

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_KERNELS_H_
