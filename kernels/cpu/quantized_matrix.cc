#include "kernels/cpu/quantized_matrix.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/quantized_packing.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/weight_slices.h"

namespace refrain::kernels::cpu {
namespace {

// From how many rows on tiles of bf16 multiply a weight of `elements` elements. Unpacking weights
// to them takes as long as vectors take to multiply 12 rows of 8 bits; of small weights there is
// more beside it, and of Q8_0 vectors have less to unpack.
int64_t MinTileRows(DType dtype, int64_t elements) {
  constexpr int64_t kLarge = 1 << 22;
  if (dtype == DType::kQ8_0) return 24;
  return elements >= kLarge ? 12 : 16;
}

// Of FixedKernels or TileKernels.
template <class Kernels>
auto FunctionFor(const Kernels& kernels, DType dtype) -> decltype(kernels.q8_0) {
  switch (dtype) {
    case DType::kQ8_0:
      return kernels.q8_0;
    case DType::kQ4_0:
      return kernels.q4_0;
    case DType::kQ4_1:
      return kernels.q4_1;
    case DType::kQ5_0:
      return kernels.q5_0;
    case DType::kQ5_1:
      return kernels.q5_1;
    case DType::kQ4_K:
      return kernels.q4_k;
    case DType::kQ5_K:
      return kernels.q5_k;
    case DType::kQ6_K:
      return kernels.q6_k;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
      break;
  }
  return nullptr;
}

// What becomes of a weight of the others before it is rounded to bf16 hangs on its block's minimum.
bool HasMinimum(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K ||
         dtype == DType::kQ5_K;
}

class QuantizedMatrix : public PackedMatrix {
 public:
  QuantizedMatrix(DType dtype, ActivationForm form, const QuantizedPanels& panels,
                  DeviceBuffer memory, std::optional<ProductBounds> bounds,
                  const QuantizedKernels& kernels)
      : dtype_(dtype),
        form_(form),
        panels_(panels),
        memory_(std::move(memory)),
        bounds_(std::move(bounds)),
        multiply_fixed_(FunctionFor(kernels.by_digits[1], dtype)),
        multiply_int8_(FunctionFor(kernels.by_digits[0], dtype)),
        multiply_tiles_(kernels.tiles == nullptr ? nullptr : FunctionFor(*kernels.tiles, dtype)),
        least_rows_of_words_(form == ActivationForm::kFixed &&
                                     kernels.least_rows_of_words != nullptr
                                 ? kernels.least_rows_of_words(FormatOf(dtype).bits)
                                 : 0),
        words_of_all_(least_rows_of_words_ > 0 && FormatOf(dtype).bits == 8),
        min_tile_rows_(MinTileRows(dtype, panels.n * panels.blocks * kBlockK)) {}

  int64_t n() const override { return panels_.n; }
  int64_t k() const override { return panels_.blocks * kBlockK; }
  size_t resident_bytes() const override {
    return memory_.bytes() + (bounds_ ? bounds_->norms.size() * sizeof(float) : 0);
  }
  ActivationForm form(const ProductKind& kind) const override {
    if (multiply_tiles_ == nullptr || kind.reproducible || kind.rows < min_tile_rows_) {
      return words_of_all_ ? ActivationForm::kFixedOfAll : form_;
    }
    return form_ == ActivationForm::kFixed ? ActivationForm::kExactTiles : ActivationForm::kTiles;
  }

  bool reads_words(const ProductKind& kind) const override {
    return least_rows_of_words_ > 0 && kind.rows >= least_rows_of_words_;
  }

  void Multiply(const Activations& x, int64_t row_begin, int64_t row_end, int64_t tile_begin,
                int64_t tile_end, float* out, int64_t out_stride, bool accumulate,
                bool reproducible) const override {
    const ActivationForm now = form({x.rows, reproducible});
    if (now == ActivationForm::kTiles || now == ActivationForm::kExactTiles) {
      assert(x.tiles.high != nullptr && x.tiles.steps == panels_.blocks);
      TileRows tiles = x.tiles;
      if (now == ActivationForm::kTiles) tiles.exact = nullptr;
      return multiply_tiles_(
          panels_, tiles,
          {row_begin, row_end, tile_begin, tile_end, n(), out, out_stride, accumulate});
    }
    const ProductRange range = {row_begin, row_end,    tile_begin, tile_end,
                                out,       out_stride, accumulate};
    if (now == ActivationForm::kFixed && x.mixed.coarse_before != nullptr) {
      return MultiplyMixed(x, range);
    }
    const bool fixed = form_ == ActivationForm::kFixed;
    Call(fixed ? multiply_fixed_ : multiply_int8_, fixed ? x.fixed : x.int8, x, range);
  }

  const ProductBounds* bounds() const override { return bounds_ ? &*bounds_ : nullptr; }

  ActivationForm rough_form(int64_t rows) const override {
    const bool tiles = multiply_tiles_ != nullptr && rows >= min_tile_rows_;
    return tiles && !HasMinimum(dtype_) ? ActivationForm::kTiles : ActivationForm::kRough;
  }

  void MultiplyRough(const Activations& x, int64_t row_begin, int64_t row_end, int64_t tile_begin,
                     int64_t tile_end, float* out, int64_t out_stride) const override {
    if (rough_form(x.rows) == ActivationForm::kTiles) {
      assert(x.tiles.high != nullptr && x.tiles.steps == panels_.blocks);
      TileRows tiles = x.tiles;
      tiles.exact = nullptr;
      return multiply_tiles_(panels_, tiles,
                             {row_begin, row_end, tile_begin, tile_end, n(), out, out_stride,
                              /*accumulate=*/false});
    }
    Call(multiply_int8_, x.rough, x,
         {row_begin, row_end, tile_begin, tile_end, out, out_stride, /*accumulate=*/false});
  }

  void DequantizeRow(int64_t row, float* out) const override {
    assert(row >= 0 && row < n());
    UnpackRow(dtype_, panels_.data + row / kTileN * panels_.tile_bytes, panels_.blocks,
              static_cast<int>(row % kTileN), out);
  }

 private:
  // The range's coarse rows, then the others: each kind unpacks the weights once.
  void MultiplyMixed(const Activations& x, const ProductRange& range) const {
    const int64_t coarse_begin = x.mixed.coarse_before[range.row_begin];
    const int64_t coarse_end = x.mixed.coarse_before[range.row_end];
    ProductRange part = range;
    part.row_begin = coarse_begin;
    part.row_end = coarse_end;
    part.out_rows = x.mixed.coarse_rows;
    if (part.row_begin < part.row_end) Call(multiply_int8_, x.mixed.coarse, x, part);
    part.row_begin = range.row_begin - coarse_begin;
    part.row_end = range.row_end - coarse_end;
    part.out_rows = x.mixed.exact_rows;
    if (part.row_begin < part.row_end) Call(multiply_fixed_, x.mixed.exact, x, part);
  }

  void Call(MultiplyQuantizedFn multiply, const FixedRows& fixed, const Activations& x,
            const ProductRange& range) const {
    assert(x.k == k() && fixed.digits != nullptr && fixed.blocks == panels_.blocks);
    assert(range.row_begin >= 0 && range.row_end <= x.rows);
    assert(range.tile_begin >= 0 && range.tile_end <= (n() + kTileN - 1) / kTileN);
    multiply(panels_, fixed, range);
  }

  DType dtype_;
  ActivationForm form_;
  QuantizedPanels panels_;
  DeviceBuffer memory_;
  std::optional<ProductBounds> bounds_;
  MultiplyQuantizedFn multiply_fixed_, multiply_int8_;
  MultiplyTilesFn multiply_tiles_;  // null: no tiles
  int least_rows_of_words_;         // 0: none are read
  bool words_of_all_;               // coarse rows' one digit would take longer
  int64_t min_tile_rows_;
};

// Nothing for weights that are not finite.
std::optional<ProductBounds> BoundsOf(DType dtype, const QuantizedPanels& panels,
                                      ThreadPool& pool) {
  ProductBounds bounds{std::vector<float>(panels.n), 0};
  std::vector<float> terms(panels.n);
  pool.ParallelFor(panels.n, /*grain=*/4 * kTileN, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const RowNorms norms = NormsOfRow(dtype, panels.data + row / kTileN * panels.tile_bytes,
                                        panels.blocks, static_cast<int>(row % kTileN));
      bounds.norms[row] = static_cast<float>(norms.length);
      terms[row] = static_cast<float>(norms.terms);
    }
  });
  for (int64_t row = 0; row < panels.n; ++row) {
    if (!std::isfinite(bounds.norms[row]) || !std::isfinite(terms[row])) return std::nullopt;
    bounds.terms = std::max(bounds.terms, terms[row]);
  }
  return bounds;
}

absl::Status CheckAlike(std::span<const WeightSlice> slices) {
  const WeightSlice& first = slices[0];
  for (const WeightSlice& slice : slices) {
    const std::string name(Traits(slice.dtype).name);
    if (!Traits(slice.dtype).quantized) {
      return absl::InvalidArgumentError(absl::StrCat("cannot pack ", name, " as quantised"));
    }
    if (slice.dtype != first.dtype) {
      return absl::InvalidArgumentError(absl::StrCat("slices of one packed matrix differ: ", name,
                                                     " beside ",
                                                     std::string(Traits(first.dtype).name)));
    }
  }
  return absl::OkStatus();
}

// Where each output row is stored.
std::vector<const std::byte*> SourceRows(std::span<const WeightSlice> slices) {
  std::vector<const std::byte*> rows;
  for (const WeightSlice& slice : slices) {
    const size_t row_bytes = *RowBytes(slice.dtype, slice.cols);
    for (int64_t i = 0; i < slice.rows; ++i) {
      const int64_t source = slice.row_order.empty() ? i : slice.row_order[i];
      rows.push_back(slice.data + source * row_bytes);
    }
  }
  return rows;
}

}  // namespace

const QuantizedKernels& QuantizedKernelsFor(Isa isa) {
  if (isa >= Isa::kAmx) return kQuantizedKernelsAmx;
  if (isa >= Isa::kAvx512Vnni) return kQuantizedKernelsAvx512Vnni;
  if (isa >= Isa::kAvx512) return kQuantizedKernelsAvx512;
  if (isa >= Isa::kAvxVnni) {
    return HasVexVnni() ? kQuantizedKernelsAvxVnni : kQuantizedKernelsAvxVnniEvex;
  }
  if (isa >= Isa::kAvx2) return kQuantizedKernelsAvx2;
  return kQuantizedKernelsPortable;
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> PackQuantized(std::span<const WeightSlice> slices,
                                                            ActivationForm form, Isa isa,
                                                            Device& device, ThreadPool& pool,
                                                            bool argmax) {
  assert(form == ActivationForm::kFixed || form == ActivationForm::kInt8);
  if (absl::Status status = CheckSlices(slices); !status.ok()) return status;
  if (absl::Status status = CheckAlike(slices); !status.ok()) return status;
  const DType dtype = slices[0].dtype;
  const QuantizedFormat format = FormatOf(dtype);
  const std::vector<const std::byte*> rows = SourceRows(slices);

  QuantizedPanels panels;
  panels.n = static_cast<int64_t>(rows.size());
  panels.blocks = slices[0].cols / kBlockK;
  panels.tile_bytes = TileBytes(format, panels.blocks);
  panels.scale_bytes = ScaleBytes(format, panels.blocks);
  const int64_t tiles = (panels.n + kTileN - 1) / kTileN;
  absl::StatusOr<DeviceBuffer> memory =
      device.Allocate(tiles * panels.tile_bytes, /*huge_pages=*/true);
  if (!memory.ok()) return memory.status();
  auto* data = reinterpret_cast<uint8_t*>(memory->data());
  panels.data = data;

  pool.ParallelFor(tiles, /*grain=*/4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * kTileN; row < end * kTileN && row < panels.n; ++row) {
      PackRow(dtype, rows[row], panels.blocks, static_cast<int>(row % kTileN),
              data + row / kTileN * panels.tile_bytes);
    }
  });
  std::optional<ProductBounds> bounds;
  if (argmax && form == ActivationForm::kFixed) bounds = BoundsOf(dtype, panels, pool);
  return std::make_unique<QuantizedMatrix>(dtype, form, panels, *std::move(memory),
                                           std::move(bounds), QuantizedKernelsFor(isa));
}

}  // namespace refrain::kernels::cpu
