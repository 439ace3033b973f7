#include "kernels/cpu/activation_buffer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {
namespace {

// Elements that one thread converts in about the time it takes to wake another (1 us).
constexpr int64_t kElementsAlone = 8192;

constexpr int64_t kBF16Padding = 64;

// Where blocks are this many times as large as the mean of their row's, a second digit takes a
// fifth (MLP) to a half (QKV) of the error away: a few channels are always far larger than others.
// It costs a twentieth of the dot products: docs/results/accuracy.md.
constexpr float kStandsOut = 4.0f;
constexpr float kNoneStandsOut = std::numeric_limits<float>::infinity();

// Rows are taken as the element-wise operations take them: what made a row most often has it still
// in its caches.
template <typename Fn>
void ForRows(int64_t rows, int64_t k, ThreadPool& pool, const Fn& fn) {
  pool.ParallelForStretches(rows, std::max<int64_t>(1, kElementsAlone / k),
                            [&](int64_t begin, int64_t end) {
                              for (int64_t row = begin; row < end; ++row) fn(row);
                            });
}

// To nearest, ties to even; NaN stays NaN.
uint16_t RoundToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

FixedRows ActivationBuffer::PrepareFixed(const TensorView& x, int digits, bool words,
                                         float stands_out, ThreadPool& pool,
                                         FixedRowsMemory& memory) {
  assert(x.cols % kBlockK == 0);
  const int64_t blocks = x.cols / kBlockK;
  memory.Resize(digits, x.rows, blocks, words);
  const auto quantize_row = QuantizedKernelsFor(isa_).by_digits[digits - 1].quantize_row;
  ForRows(x.rows, x.cols, pool,
          [&](int64_t row) { quantize_row(x.F32Row(row), blocks, stands_out, memory.Row(row)); });
  return memory.view();
}

// Each kind in memory of its own, for a kernel of its own: in that of one digit every block with a
// second one takes its totals through memory (AddBlockWithLow), which is slower than the kernel of
// two digits.
MixedRows ActivationBuffer::PrepareMixed(const TensorView& x, bool words,
                                         std::span<const uint8_t> coarse_rows, ThreadPool& pool) {
  assert(x.cols % kBlockK == 0 && static_cast<int64_t>(coarse_rows.size()) == x.rows);
  const int64_t blocks = x.cols / kBlockK;
  coarse_before_.assign(1, 0);
  coarse_rows_.clear();
  exact_rows_.clear();
  for (int64_t row = 0; row < x.rows; ++row) {
    (coarse_rows[row] != 0 ? coarse_rows_ : exact_rows_).push_back(static_cast<int32_t>(row));
    coarse_before_.push_back(static_cast<int32_t>(coarse_rows_.size()));
  }
  coarse_.Resize(1, static_cast<int64_t>(coarse_rows_.size()), blocks);
  exact_.Resize(2, static_cast<int64_t>(exact_rows_.size()), blocks, words);
  const QuantizedKernels& kernels = QuantizedKernelsFor(isa_);
  ForRows(x.rows, x.cols, pool, [&](int64_t row) {
    const int64_t before = coarse_before_[row];
    if (coarse_rows[row] != 0) {
      kernels.by_digits[0].quantize_row(x.F32Row(row), blocks, kStandsOut, coarse_.Row(before));
    } else {
      kernels.by_digits[1].quantize_row(x.F32Row(row), blocks, kNoneStandsOut,
                                        exact_.Row(row - before));
    }
  });
  return {coarse_.view(), exact_.view(), coarse_rows_.data(), exact_rows_.data(),
          coarse_before_.data()};
}

Activations ActivationBuffer::Prepare(const TensorView& x, ActivationForms forms,
                                      std::span<const uint8_t> coarse_rows, ThreadPool& pool) {
  assert(x.dtype == DType::kF32);
  Activations out;
  out.rows = x.rows;
  out.k = x.cols;
  out.f32 = static_cast<const float*>(x.data);
  out.f32_stride = x.stride;
  if (instead_of_ != nullptr && x.data == instead_of_) {
    const TileRows instead = tiles_instead_.view();
    const bool fits = forms.tiles && instead.rows == x.rows && instead.steps * kTileK == x.cols;
    assert(fits && "not the reader that GateUp was told of");
    instead_of_ = nullptr;
    if (fits) {
      out.tiles = instead;
      return out;
    }
  }
  if (forms.bf16) PrepareBF16(x, pool, out);
  if (forms.fixed) out.fixed = PrepareFixed(x, 2, forms.words, kNoneStandsOut, pool, fixed_);
  if (forms.mixed) out.mixed = PrepareMixed(x, forms.words, coarse_rows, pool);
  if (forms.int8) out.int8 = PrepareFixed(x, 1, false, kStandsOut, pool, int8_);
  if (forms.tiles) out.tiles = PrepareTiles(x, forms.exact_tiles, coarse_rows, pool);
  if (forms.rough) out.rough = PrepareFixed(x, 1, false, kNoneStandsOut, pool, rough_);
  return out;
}

void ActivationBuffer::SizeTiles(const TensorView& x, bool exact,
                                 std::span<const uint8_t> coarse_rows, TileRowsMemory& memory) {
  memory.Resize(x.rows, x.cols, exact);
  for (int64_t row = 0; exact && row < x.rows; ++row) {
    if (coarse_rows.empty() || coarse_rows[row] == 0) memory.SetExact(row);
  }
}

TileRowsMemory& ActivationBuffer::TilesInstead(const TensorView& x, bool exact,
                                               std::span<const uint8_t> coarse_rows) {
  SizeTiles(x, exact, coarse_rows, tiles_instead_);
  instead_of_ = x.data;
  return tiles_instead_;
}

TileRows ActivationBuffer::PrepareTiles(const TensorView& x, bool exact,
                                        std::span<const uint8_t> coarse_rows, ThreadPool& pool) {
  SizeTiles(x, exact, coarse_rows, tiles_);
  const auto pack_row = QuantizedKernelsFor(isa_).tiles->pack_row;
  ForRows(x.rows, x.cols, pool,
          [&](int64_t row) { pack_row(x.F32Row(row), x.cols, tiles_.high(row), tiles_.low(row)); });
  return tiles_.view();
}

void ActivationBuffer::PrepareBF16(const TensorView& x, ThreadPool& pool, Activations& out) {
  const int64_t stride = (x.cols + kBF16Padding - 1) / kBF16Padding * kBF16Padding;
  if (static_cast<int64_t>(bf16_.size()) < x.rows * stride) bf16_.resize(x.rows * stride);
  uint16_t* const to = bf16_.data();
  ForRows(x.rows, x.cols, pool, [&](int64_t row) {
    const float* from = x.F32Row(row);
    uint16_t* to_row = to + row * stride;
    for (int64_t i = 0; i < x.cols; ++i) to_row[i] = RoundToBF16(from[i]);
    std::fill(to_row + x.cols, to_row + stride, uint16_t{0});
  });
  out.bf16 = to;
  out.bf16_stride = stride;
}

}  // namespace refrain::kernels::cpu
