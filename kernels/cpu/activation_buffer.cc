#include "kernels/cpu/activation_buffer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <optional>

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_matrix.h"

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
constexpr float kAllStandOut = 0.0f;

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

template <typename StandsOut>
FixedRows ActivationBuffer::PrepareFixed(const TensorView& x, int digits,
                                         const StandsOut& stands_out, ThreadPool& pool,
                                         FixedRowsMemory& memory) {
  assert(x.cols % kBlockK == 0);
  const int64_t blocks = x.cols / kBlockK;
  memory.Resize(digits, x.rows, blocks);
  const auto quantize_row = QuantizedKernelsFor(isa_).by_digits[digits - 1].quantize_row;
  ForRows(x.rows, x.cols, pool, [&](int64_t row) {
    const std::optional<float> bound = stands_out(row);
    if (bound.has_value()) quantize_row(x.F32Row(row), blocks, *bound, memory.Row(row));
  });
  return memory.view();
}

Activations ActivationBuffer::Prepare(const TensorView& x, ActivationForms forms,
                                      std::span<const uint8_t> context_rows, ThreadPool& pool) {
  assert(x.dtype == DType::kF32);
  assert(context_rows.empty() || static_cast<int64_t>(context_rows.size()) == x.rows);
  using Bound = std::optional<float>;
  const auto none = [](int64_t) { return Bound(kNoneStandsOut); };
  const auto few = [context_rows](int64_t row) {
    return Bound(context_rows.empty() || context_rows[row] != 0 ? kStandsOut : kAllStandOut);
  };
  // A kernel each: in that of one digit every block with a second one takes its totals through
  // memory (AddBlockWithLow), which is slower than the kernel of two digits.
  const auto of_others = [context_rows](int64_t row) {
    return context_rows[row] != 0 ? Bound() : Bound(kNoneStandsOut);
  };
  const auto of_context = [context_rows](int64_t row) {
    return context_rows[row] != 0 ? Bound(kStandsOut) : Bound();
  };
  Activations out;
  out.rows = x.rows;
  out.k = x.cols;
  out.f32 = static_cast<const float*>(x.data);
  out.f32_stride = x.stride;
  if (forms.bf16) PrepareBF16(x, pool, out);
  if (forms.mixed) out.context_rows = context_rows;
  if (forms.fixed) {
    out.fixed = PrepareFixed(x, 2, none, pool, fixed_);
  } else if (forms.mixed) {
    out.fixed = PrepareFixed(x, 2, of_others, pool, fixed_);
  }
  if (forms.int8) {
    out.int8 = PrepareFixed(x, 1, few, pool, int8_);
  } else if (forms.mixed) {
    out.int8 = PrepareFixed(x, 1, of_context, pool, int8_);
  }
  if (forms.rough) out.rough = PrepareFixed(x, 1, none, pool, rough_);
  return out;
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
