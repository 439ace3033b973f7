#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_KERNELS_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_KERNELS_H_

#include <cstdint>

// The inner loops over quantised weights, one table of functions per instruction-set level.
//
// This header is included by files that are compiled for one level each, so it holds plain data
// only: an inline function here could end up in the program in its widest form.

namespace refrain::kernels::cpu {

// Elements along k that share one activation scale, and the unit of the packed layout.
inline constexpr int kBlockK = 32;
inline constexpr int kBlocksPerSuperBlock = 8;

// How a stored type scales its integers. With d, m, ... per output row:
enum class ScaleKind : uint8_t {
  kScale,       // w = d * (q - zero), f16 d per block of 32
  kScaleMin,    // w = d * q + m, f16 d and m per block of 32
  kSuperMin,    // w = d * sc * q - dmin * mn; f16 d, dmin per 256, u8 sc, mn per 32
  kSuperScale,  // w = d * sc * (q - zero); f16 d per 256, i8 sc per 16
};

// The packed layout. A weight is a sequence of tiles of 16 output rows; a tile is its scales, for
// all blocks of 32 along k in order, rounded up to 64 bytes, then its quants, block after block.
// The lanes of every vector are the 16 rows ("n" below).
//
// Quants of a block: eight operands j = 0..7 of 64 bytes; byte 4 n + i of operand j belongs to row
// n, k = 4 j + i, as the 8-bit dot products of AVX-512 VNNI want it.
//   8 bits: the operands, each value + 128                                  512 bytes
//   4 bits: four vectors; vector v has operand 2 v in its low nibbles and operand 2 v + 1 in its
//           high ones                                                       256 bytes
//   5 bits: as 4, and one vector whose bit j is the fifth bit of operand j  320 bytes
//   6 bits: as 4, and two vectors, bits 2 (j % 4) and above of vector j / 4 are the upper two
//           bits of operand j                                               384 bytes
// Scales:
//   kScale: d[16] per block. kScaleMin: d[16], m[16] per block.
//   kSuperMin: per 256 d[16], -dmin[16], then per block sc[16], mn[16].
//   kSuperScale: per 256 d[16], then per block sc[16] of its first half, sc[16] of its second.
struct QuantizedPanels {
  const uint8_t* data;  // aligned to 64
  int64_t n;            // output rows; the last tile may be part-full
  int64_t blocks;       // k / 32
  int64_t tile_bytes;   // scales and quants
  int64_t scale_bytes;  // offset of the quants in a tile
};

constexpr int ScaleBytesPerSuperBlock(ScaleKind kind) {
  return kind == ScaleKind::kScale      ? 8 * 32
         : kind == ScaleKind::kScaleMin ? 8 * 64
         : kind == ScaleKind::kSuperMin ? 64 + 8 * 32
                                        : 32 + 8 * 32;
}

constexpr int QuantBytesPerBlock(int bits) { return bits == 8 ? 512 : 256 + (bits - 4) * 64; }

// Activations in fixed point, a scale per block of 32: q = round(x / scale), which 8-bit dot
// products take as
//   two digits: q in [-16319, 16319], q = 128 * high + low with high in [-127, 127] and low in
//               [-64, 63]
//   one digit:  q in [-127, 127], half of the dot products. Off by up to 0.4 % of a block's
//               largest, of which the last layers make tenths of a log-probability. Most of that
//               is due to few blocks that are far larger than the others of their row, so these
//               have two digits all the same. Units are those of high digits then:
//               x / scale = high + low / 128.
inline constexpr int kDigitBits = 7;
inline constexpr int kMaxOneDigit = 127;
inline constexpr int kMaxTwoDigits = 127 * 128 + 63;

// All rows of an operation. With two digits x = scale * q, q = 128 * high + low. With one
// x = scale * (high + low / 128), low being 0 but where has_low; q is 128 times that.
struct FixedRows {
  int64_t blocks;                    // k / 32
  const int8_t* digits;              // [rows, k / 32, {high, low}, 32], or [rows, k / 32, 32]
  const float* scales;               // [rows, k / 32]
  const float* scaled_sums;          // [rows, k / 32] the sum of x
  const int32_t* negated_sums;       // [rows, k / 32] minus the sum of q
  const int32_t* half_negated_sums;  // [rows, k / 16] the same per 16
  const int8_t* low;                 // [rows, k / 32, 32] where has_low; null for two digits
  const uint8_t* has_low;            // [rows, k / 32]; null for two digits
  // [rows, k / 32, 32] q of two digits as one number, each four elements of k in the order 0, 2, 1,
  // 3: what levels with QuantizedKernels::least_rows_of_words multiply by, with the same bits.
  // Null: there are none, and it is the digits that are multiplied.
  const int16_t* words;
};

struct ProductRange {
  int64_t row_begin, row_end;
  int64_t tile_begin, tile_end;
  float* out;  // row 0, column 0
  int64_t out_stride;
  bool accumulate;
  const int32_t* out_rows = nullptr;  // where each row's products belong; null: where it is itself
};

// Where QuantizeRow puts one row.
struct FixedRowOut {
  int8_t* digits;              // [k / 32, {high, low}, 32], or [k / 32, 32]
  float* scales;               // [k / 32]
  float* scaled_sums;          // [k / 32]
  int32_t* negated_sums;       // [k / 32]
  int32_t* half_negated_sums;  // [k / 16]
  int8_t* low;                 // [k / 32, 32], written where has_low; null for two digits
  uint8_t* has_low;            // [k / 32]; null for two digits
  int16_t* words;              // [k / 32, 32], or null: not wanted
};

using MultiplyQuantizedFn = void (*)(const QuantizedPanels&, const FixedRows&, const ProductRange&);

// For activations of one number of digits (one: with a second in blocks that stand out).
struct FixedKernels {
  // By stored type. Each output element is, for every number of rows and every range,
  //   sum = accumulate ? out : 0;  for each block (or half block) in order of k:
  //   sum = fma(float(integer dot product), weight scale * activation scale, sum),
  //   the integer being exact: of two digits 128 times the dot product of the high ones, and the
  //   low ones' (divided by 128, exactly, where units are those of high digits);
  //   and, for types with a minimum, sum = fma(minimum, scaled sum, sum).
  MultiplyQuantizedFn q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k;

  // Of one digit, blocks whose largest is more than `stands_out` times as large as the mean of
  // all blocks' largest have a low one, too; infinity: none has. Not read for two digits.
  void (*quantize_row)(const float* x, int64_t blocks, float stands_out, const FixedRowOut& out);
};

struct TileKernels;  // tile_kernels.h

struct QuantizedKernels {
  FixedKernels by_digits[2];  // [digits - 1]
  // gate[i] = silu(gate[i]) * up[i]
  void (*silu_mul)(float* gate, const float* up, int64_t count);
  const TileKernels* tiles = nullptr;  // for many rows; null: no tiles of bf16
  // From how many rows on weights whose quants have so many bits are multiplied by words
  // (FixedRows::words); 0, or null: none are.
  int (*least_rows_of_words)(int bits) = nullptr;
};

extern const QuantizedKernels kQuantizedKernelsPortable;
extern const QuantizedKernels kQuantizedKernelsAvx2;
extern const QuantizedKernels kQuantizedKernelsAvxVnni;
extern const QuantizedKernels kQuantizedKernelsAvxVnniEvex;  // with AVX-512 VNNI's encoding
extern const QuantizedKernels kQuantizedKernelsAvx512;
extern const QuantizedKernels kQuantizedKernelsAvx512Vnni;
extern const QuantizedKernels kQuantizedKernelsAmx;

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_KERNELS_H_
