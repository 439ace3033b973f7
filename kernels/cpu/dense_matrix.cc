#include "kernels/cpu/dense_matrix.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/dense_product.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "kernels/weight_slices.h"

namespace refrain::kernels::cpu {
namespace {

// Rows of a bf16 matrix are padded to a whole AMX tile: 32 elements of k.
constexpr int64_t kBf16PadK = 32;
// From this many rows on AMX tiles are used: of few rows reading the weights takes the time, by
// tiles or not.
constexpr int64_t kAmxMinRows = 8;

int64_t RoundUp(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// The elements of one source row in a form's element type. `wide` is scratch of k floats.
void ReadRow(const WeightSlice& slice, const std::byte* row, DenseForm form,
             std::vector<float>& wide, float* out) {
  kernels::DequantizeRow(slice.dtype, row, slice.cols, out);
}

void ReadRow(const WeightSlice& slice, const std::byte* row, DenseForm form,
             std::vector<float>& wide, uint16_t* out) {
  const DType same = form == DenseForm::kF16 ? DType::kF16 : DType::kBF16;
  if (slice.dtype == same) {
    std::memcpy(out, row, slice.cols * sizeof(uint16_t));
    return;
  }
  kernels::DequantizeRow(slice.dtype, row, slice.cols, wide.data());
  for (int64_t i = 0; i < slice.cols; ++i) {
    out[i] = form == DenseForm::kF16 ? F32ToF16(wide[i]) : F32ToBf16(wide[i]);
  }
}

struct ElementPair {
  uint16_t even, odd;
};

// Rows [lanes, k], one behind the other, to [k][16].
template <typename Word>
void WriteLanes(const Word* rows, int64_t k, int64_t lanes, Word* out) {
  const auto write = [&](auto count) {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t lane = 0; lane < count; ++lane) out[i * kTileN + lane] = rows[lane * k + i];
    }
  };
  if (lanes == kTileN) return write(std::integral_constant<int64_t, kTileN>());
  write(lanes);
}

class DenseMatrix final : public PackedMatrix {
 public:
  DenseMatrix(DenseForm form, int64_t n, int64_t k, const DenseKernels& kernels)
      : form_(form), n_(n), k_(k), kernels_(kernels) {}

  absl::Status Pack(std::span<const WeightSlice> slices, Device& device, ThreadPool& pool) {
    const int64_t num_panels = RoundUp(n_, kTileN) / kTileN;
    auto buffer = device.Allocate(num_panels * panel_bytes(), /*huge_pages=*/true);
    if (!buffer.ok()) return buffer.status();
    buffer_ = *std::move(buffer);
    if (form_ == DenseForm::kF32) {
      PackElements<float>(slices, pool);
    } else {
      PackElements<uint16_t>(slices, pool);
    }
    return absl::OkStatus();
  }

  int64_t n() const override { return n_; }
  int64_t k() const override { return k_; }
  size_t resident_bytes() const override { return buffer_.bytes(); }

  ActivationForm form(const ProductKind& kind) const override {
    if (!uses_bf16_dot()) return ActivationForm::kF32;
    const bool tiles = kernels_.tiles != nullptr && !kind.reproducible && kind.rows >= kAmxMinRows;
    return tiles ? ActivationForm::kTiles : ActivationForm::kBF16;
  }

  void Multiply(const Activations& x, int64_t row_begin, int64_t row_end, int64_t tile_begin,
                int64_t tile_end, float* out, int64_t out_stride, bool accumulate,
                bool reproducible) const override;

  void DequantizeRow(int64_t row, float* out) const override {
    assert(row >= 0 && row < n_);
    const std::byte* panel = buffer_.data() + row / kTileN * panel_bytes();
    for (int64_t k = 0; k < k_; ++k) {
      const int64_t index = ElementIndex(row % kTileN, k);
      if (form_ == DenseForm::kF32) {
        out[k] = reinterpret_cast<const float*>(panel)[index];
      } else {
        const uint16_t bits = reinterpret_cast<const uint16_t*>(panel)[index];
        out[k] = form_ == DenseForm::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
      }
    }
  }

 private:
  bool uses_bf16_dot() const { return form_ == DenseForm::kBF16 && kernels_.bf16_dot != nullptr; }
  int64_t padded_k() const { return form_ == DenseForm::kBF16 ? RoundUp(k_, kBf16PadK) : k_; }
  int64_t panel_bytes() const {
    return padded_k() * kTileN * (form_ == DenseForm::kF32 ? sizeof(float) : sizeof(uint16_t));
  }
  DenseRead read() const {
    if (form_ == DenseForm::kF32) return DenseRead::kF32;
    if (form_ == DenseForm::kF16) return DenseRead::kF16;
    return uses_bf16_dot() ? DenseRead::kBF16Dot : DenseRead::kBF16Widened;
  }

  // Of element (lane, k) inside its panel.
  int64_t ElementIndex(int64_t lane, int64_t k) const {
    if (form_ == DenseForm::kBF16) return (k / 2 * kTileN + lane) * 2 + k % 2;
    return k * kTileN + lane;
  }

  // Element is float or, for both 16-bit forms, uint16_t. Padding stays as Allocate gave it: zero.
  // Each panel is one thread's.
  template <typename Element>
  void PackElements(std::span<const WeightSlice> slices, ThreadPool& pool) {
    struct Scratch {
      std::vector<Element> rows;  // [16, padded_k()]: one panel, not yet transposed
      std::vector<float> wide;    // [k]
    };
    std::vector<Scratch> scratch(pool.threads());
    for (Scratch& own : scratch) {
      own.rows.resize(kTileN * padded_k());
      own.wide.resize(k_);
    }
    const int64_t panels = RoundUp(n_, kTileN) / kTileN;
    pool.ParallelFor(panels, /*grain=*/4, [&](int thread, int64_t begin, int64_t end) {
      Scratch& own = scratch[thread];
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t lanes = std::min<int64_t>(kTileN, n_ - panel * kTileN);
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const auto [slice, row] = SourceOf(slices, panel * kTileN + lane);
          ReadRow(*slice, row, form_, own.wide, &own.rows[lane * padded_k()]);
        }
        WritePanel(own.rows, panel, lanes);
      }
    });
  }

  // The slice of output row `n`, and that row in it.
  static std::pair<const WeightSlice*, const std::byte*> SourceOf(
      std::span<const WeightSlice> slices, int64_t n) {
    const WeightSlice* slice = slices.data();
    for (; n >= slice->rows; ++slice) n -= slice->rows;
    const int64_t row = slice->row_order.empty() ? n : slice->row_order[n];
    return {slice, slice->data + row * static_cast<int64_t>(*RowBytes(slice->dtype, slice->cols))};
  }

  // `rows` are [16, padded_k()].
  void WritePanel(const std::vector<float>& rows, int64_t panel, int64_t lanes) {
    WriteLanes(rows.data(), padded_k(), lanes,
               reinterpret_cast<float*>(buffer_.data() + panel * panel_bytes()));
  }
  void WritePanel(const std::vector<uint16_t>& rows, int64_t panel, int64_t lanes) {
    std::byte* const out = buffer_.data() + panel * panel_bytes();
    if (form_ == DenseForm::kF16) {
      return WriteLanes(rows.data(), padded_k(), lanes, reinterpret_cast<uint16_t*>(out));
    }
    // Two elements of k are one of these.
    WriteLanes(reinterpret_cast<const ElementPair*>(rows.data()), padded_k() / 2, lanes,
               reinterpret_cast<ElementPair*>(out));
  }

  const DenseForm form_;
  const int64_t n_;
  const int64_t k_;
  const DenseKernels kernels_;
  DeviceBuffer buffer_;  // [n/16] panels of panel_bytes()
};

void DenseMatrix::Multiply(const Activations& x, int64_t row_begin, int64_t row_end,
                           int64_t tile_begin, int64_t tile_end, float* out, int64_t out_stride,
                           bool accumulate, bool reproducible) const {
  assert(x.k == k_ && row_begin >= 0 && row_end <= x.rows);
  assert(tile_begin >= 0 && (tile_end - 1) * kTileN < n_);
  const int64_t rows = row_end - row_begin;
  const int64_t columns = std::min(tile_end * kTileN, n_) - tile_begin * kTileN;
  const std::byte* panels = buffer_.data() + tile_begin * panel_bytes();
  float* first = out + row_begin * out_stride + tile_begin * kTileN;
  if (!uses_bf16_dot()) {
    assert(x.f32 != nullptr);
    MultiplyDense(kernels_, {.rows = rows,
                             .columns = columns,
                             .steps = k_,
                             .accumulate = accumulate,
                             .read = read(),
                             .x = x.f32 + row_begin * x.f32_stride,
                             .x_stride = x.f32_stride,
                             .panels = panels,
                             .panel_bytes = panel_bytes(),
                             .out = first,
                             .out_stride = out_stride});
    return;
  }
  // Chosen by the rows of the whole operation, so that threads cannot disagree.
  if (form({x.rows, reproducible}) == ActivationForm::kTiles) {
    assert(x.tiles.high != nullptr && x.tiles.steps * kTileK == padded_k());
    TileRows rounded = x.tiles;
    rounded.exact = nullptr;  // W has no low terms
    const auto* const w = reinterpret_cast<const uint16_t*>(buffer_.data());
    kernels_.tiles->dense(
        {w, nullptr, padded_k() * kTileN}, rounded,
        {row_begin, row_end, tile_begin, tile_end, n_, out, out_stride, accumulate});
    return;
  }
  assert(x.bf16 != nullptr && x.bf16_stride % 2 == 0);
  const uint16_t* bf16 = x.bf16 + row_begin * x.bf16_stride;
  MultiplyDense(kernels_, {.rows = rows,
                           .columns = columns,
                           .steps = padded_k() / 2,
                           .accumulate = accumulate,
                           .read = DenseRead::kBF16Dot,
                           .x = bf16,
                           .x_stride = x.bf16_stride / 2,
                           .panels = panels,
                           .panel_bytes = panel_bytes(),
                           .out = first,
                           .out_stride = out_stride});
}

}  // namespace

DenseKernels DenseKernelsOf(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      break;
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return Avx2DenseKernels();
    case Isa::kAvx512:
    case Isa::kAvx512Vnni:
      return Avx512DenseKernels();
    case Isa::kAvx512Bf16:
      return Avx512Bf16DenseKernels();
    case Isa::kAmx: {
      DenseKernels kernels = Avx512Bf16DenseKernels();
      kernels.tiles = &kTileKernelsAmx;
      return kernels;
    }
  }
  return PortableDenseKernels();
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> PackDense(std::span<const WeightSlice> slices,
                                                        DenseForm form, const DenseKernels& kernels,
                                                        Device& device, ThreadPool& pool) {
  if (absl::Status status = CheckSlices(slices); !status.ok()) return status;
  int64_t rows = 0;
  for (const WeightSlice& slice : slices) rows += slice.rows;
  auto matrix = std::make_unique<DenseMatrix>(form, rows, slices[0].cols, kernels);
  const absl::Status status = matrix->Pack(slices, device, pool);
  if (!status.ok()) return status;
  return matrix;
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> PackDense(std::span<const WeightSlice> slices,
                                                        DenseForm form, Isa isa, Device& device,
                                                        ThreadPool& pool) {
  return PackDense(slices, form, DenseKernelsOf(isa), device, pool);
}

}  // namespace refrain::kernels::cpu
