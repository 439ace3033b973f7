#ifndef REFRAIN_KERNELS_CPU_PACKED_MATRIX_H_
#define REFRAIN_KERNELS_CPU_PACKED_MATRIX_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {

// Output columns of one tile. Every packed form has its lanes along n, so that each output element
// is summed over k in one order (but by AMX tiles), whatever the number of rows, threads or the
// tile it falls in.
inline constexpr int kTileN = 16;

// What a packed form wants its activations as. The back end prepares each form at most once per
// operation.
enum class ActivationForm : uint8_t {
  kF32,         // as they come
  kBF16,        // rounded to nearest even
  kFixed,       // 15 bits of fixed point per block of 32 along k (FixedRows in quantized_kernels.h)
  kFixedOfAll,  // the same, of coarse rows, too
  kInt8,        // 8 bits of it, 15 in blocks that are far larger than the others of their row
  kRough,       // 8 bits of it
  kTiles,       // TileRows of bf16
  kExactTiles,  // and what that took away of rows that are not coarse
};

// Coarse rows (LinearArgs::coarse_rows) in fixed point of 8 bits, as kInt8, and the others of
// 15, each kind one behind the other.
struct MixedRows {
  FixedRows coarse{}, exact{};
  const int32_t* coarse_rows = nullptr;  // which row of the operation each of `coarse` is
  const int32_t* exact_rows = nullptr;   //  the same of `exact`
  // [rows + 1] how many of the operation's rows before each are coarse. Null: nothing is mixed.
  const int32_t* coarse_before = nullptr;
};

// Activations of one operation, in the forms asked for (others are null).
struct Activations {
  int64_t rows = 0;
  int64_t k = 0;

  const float* f32 = nullptr;  // [rows, k], row stride f32_stride
  int64_t f32_stride = 0;

  const uint16_t* bf16 = nullptr;  // [rows, k padded with zeros to a multiple of 64]
  int64_t bf16_stride = 0;

  FixedRows fixed{}, int8{}, rough{};
  MixedRows mixed{};  // where it is there, kFixed matrices read it instead of `fixed`
  TileRows tiles{};
};

// What tells how far rough products can be from those with activations of 15 bits. With w an output
// row, as a vector over k:
struct ProductBounds {
  std::vector<float> norms;  // [n] |w|
  // For every row, |x| times it is at least the sum of |term| of all terms that a product of x and
  // w adds up (where a type has minima, they and the quants mostly cancel).
  float terms = 0;
};

// What a matrix chooses its form by, the same for all of an operation.
struct ProductKind {
  int64_t rows = 0;
  bool reproducible = false;
  bool mixes = false;  // some rows are coarse
};

// Consecutive rows of a weight, of one dtype, in one packed form. Immutable; Multiply may run on
// many threads at once on different tiles or rows.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;

  virtual int64_t n() const = 0;  // the last tile may be part-full
  virtual int64_t k() const = 0;
  virtual size_t resident_bytes() const = 0;
  virtual size_t second_copy_bytes() const { return 0; }  // of these

  // The form that Multiply will read; for kFixed it reads `mixed` where that is there. Of kinds
  // that are `reproducible` it is one and the same.
  virtual ActivationForm form(const ProductKind& kind) const = 0;
  // Whether Multiply is faster where two digits come as words, too (FixedRows::words).
  virtual bool reads_words(const ProductKind& kind) const { return false; }

  // out[r][t * 16 + i] (+)= sum_k x[r][k] w[t * 16 + i][k] for rows [row_begin, row_end) and tiles
  // [tile_begin, tile_end); columns at n() and beyond are not written. `out` points to row 0,
  // column 0 of this matrix's own columns. Where form() is of tiles, row_begin and row_end are
  // multiples of kTileRows, but for the operation's last row.
  virtual void Multiply(const Activations& x, int64_t row_begin, int64_t row_end,
                        int64_t tile_begin, int64_t tile_end, float* out, int64_t out_stride,
                        bool accumulate, bool reproducible) const = 0;

  // Null but for matrices that are packed for LinearArgMax and multiply activations in kFixed.
  virtual const ProductBounds* bounds() const { return nullptr; }
  // Where there are bounds(), what MultiplyRough reads for this many rows: kRough; or kTiles, with
  // which every weight, too, is rounded to bf16, at most once.
  virtual ActivationForm rough_form(int64_t rows) const { return ActivationForm::kRough; }
  // Multiply with the activations in rough_form(), `accumulate` false.
  virtual void MultiplyRough(const Activations& x, int64_t row_begin, int64_t row_end,
                             int64_t tile_begin, int64_t tile_end, float* out,
                             int64_t out_stride) const {
    assert(false && "no bounds");
  }

  // Dequantised row `row` into out[0, k); for Embed.
  virtual void DequantizeRow(int64_t row, float* out) const = 0;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_PACKED_MATRIX_H_
