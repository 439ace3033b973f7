#include "kernels/cpu/dense_product.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace refrain::kernels::cpu {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kMaxBlockRows = 108;
constexpr int64_t kMaxTilePanels = 4;
constexpr int64_t kMaxBlockSteps = 576;
constexpr int64_t kGroupPanels = 16;  // panels that share one packed block of x
constexpr int64_t kGroupColumns = kGroupPanels * kLanes;
// How far ahead of its own stream a tile of few rows prefetches, in bytes of one panel.
constexpr int64_t kStreamAheadBytes = 1024;
constexpr int64_t kLineBytes = 64;

static_assert(kMaxBlockSteps < kDensePackedStride);

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// Where share `i` of `count` nearly equal shares of `whole` begins.
int64_t Share(int64_t whole, int64_t i, int64_t count) { return whole * i / count; }

// The widest tile of 1, 2 or 4 panels that fits in what is left.
int64_t TilePanels(int64_t widest, int64_t left) {
  while (widest > left) widest /= 2;
  return widest;
}

// What DenseRead means for addresses and kernels.
struct Reader {
  DenseTileKernel direct;
  void (*widen)(const std::byte* panel, int64_t steps, float* out);
  int64_t step_bytes;  // of one panel
};

Reader ReaderOf(const DenseKernels& kernels, DenseRead read) {
  switch (read) {
    case DenseRead::kF16:
      return {kernels.f16, kernels.widen_f16, 2 * kLanes};
    case DenseRead::kBF16Widened:
      return {kernels.bf16, kernels.widen_bf16, 2 * kLanes};
    case DenseRead::kBF16Dot:
      return {kernels.bf16_dot, nullptr, 4 * kLanes};
    case DenseRead::kF32:
      break;
  }
  return {kernels.f32, nullptr, 4 * kLanes};
}

int LastColumns(const DenseProduct& product, int64_t panel, int64_t panels) {
  return static_cast<int>(std::min(kLanes, product.columns - (panel + panels - 1) * kLanes));
}

// Few rows: one tile of rows, no blocks, bound by reading W.
void StreamPanels(const DenseKernels& kernels, const Reader& reader, const DenseProduct& product) {
  const int rows = static_cast<int>(product.rows);
  const int64_t num_panels = CeilDiv(product.columns, kLanes);
  const int64_t widest = kernels.panels(rows);
  for (int64_t panel = 0; panel < num_panels;) {
    const int64_t panels = TilePanels(widest, num_panels - panel);
    const std::byte* b = product.panels + panel * product.panel_bytes;
    DenseTile tile{.rows = rows,
                   .panels = static_cast<int>(panels),
                   .steps = product.steps,
                   .last_columns = LastColumns(product, panel, panels),
                   .add_to_out = product.accumulate,
                   .prefetch_lines = static_cast<int>(8 * reader.step_bytes / kLineBytes),
                   .a = product.x,
                   .a_stride = product.x_stride,
                   .b = b,
                   .b_panel_bytes = product.panel_bytes,
                   .prefetch = b + kStreamAheadBytes,
                   .prefetch_panel_bytes = product.panel_bytes,
                   .out = product.out + panel * kLanes,
                   .out_stride = product.out_stride};
    reader.direct(tile);
    panel += panels;
  }
}

// One block of rows against all panels of the product. Scratch is the caller's.
class RowBlock {
 public:
  struct Scratch {
    alignas(64) float x[kMaxBlockRows * kDensePackedStride];
    alignas(64) float sums[kMaxBlockRows * kGroupColumns];
    alignas(64) float widened[kMaxTilePanels * kMaxBlockSteps * kLanes];
  };

  RowBlock(const DenseKernels& kernels, const Reader& reader, const DenseProduct& product,
           int64_t row_begin, int64_t rows, Scratch& scratch)
      : kernels_(kernels),
        reader_(reader),
        product_(product),
        row_begin_(row_begin),
        rows_(rows),
        row_tiles_(CeilDiv(rows, kernels.max_rows)),
        num_panels_(CeilDiv(product.columns, kLanes)),
        block_steps_(RoundUp(
            CeilDiv(product.steps, std::max<int64_t>(1, CeilDiv(product.steps, kMaxBlockSteps))),
            16)),
        scratch_(scratch) {}

  void Run() {
    for (int64_t group = 0; group < num_panels_; group += kGroupPanels) {
      const int64_t group_end = std::min(group + kGroupPanels, num_panels_);
      for (int64_t step = 0; step == 0 || step < product_.steps; step += block_steps_) {
        const int64_t steps = std::min(block_steps_, product_.steps - step);
        const bool packed_already = group > 0 && steps == product_.steps;
        if (!packed_already) PackX(step, steps);
        MultiplyGroup(group, group_end, step, steps);
      }
    }
  }

 private:
  void PackX(int64_t step, int64_t steps) {
    const auto* x = static_cast<const std::byte*>(product_.x);
    for (int64_t row = 0; row < rows_; ++row) {
      std::memcpy(scratch_.x + row * kDensePackedStride,
                  x + ((row_begin_ + row) * product_.x_stride + step) * sizeof(float),
                  steps * sizeof(float));
    }
  }

  void MultiplyGroup(int64_t group, int64_t group_end, int64_t step, int64_t steps) {
    const int64_t widest = kernels_.panels(static_cast<int>(CeilDiv(rows_, row_tiles_)));
    const bool widen = reader_.direct == nullptr || (reader_.widen != nullptr && row_tiles_ > 1);
    for (int64_t panel = group; panel < group_end;) {
      const int64_t panels = TilePanels(widest, group_end - panel);
      const std::byte* b =
          product_.panels + panel * product_.panel_bytes + step * reader_.step_bytes;
      // The panels that the next tiles will read, while these are multiplied.
      const std::byte* next = b + panels * product_.panel_bytes;
      if (panel + panels >= group_end) {
        const bool last = step + steps >= product_.steps;
        next = last ? product_.panels + group_end * product_.panel_bytes
                    : product_.panels + group * product_.panel_bytes +
                          (step + steps) * reader_.step_bytes;
      }
      DenseTile tile{.panels = static_cast<int>(panels),
                     .steps = steps,
                     .a_stride = kDensePackedStride,
                     .b = b,
                     .b_panel_bytes = product_.panel_bytes,
                     .prefetch_panel_bytes = product_.panel_bytes};
      if (widen) {
        for (int64_t i = 0; i < panels; ++i) {
          reader_.widen(b + i * product_.panel_bytes, steps,
                        scratch_.widened + i * kMaxBlockSteps * kLanes);
        }
        tile.b = reinterpret_cast<const std::byte*>(scratch_.widened);
        tile.b_panel_bytes = kMaxBlockSteps * kLanes * sizeof(float);
      }
      MultiplyRowTiles(widen ? kernels_.f32 : reader_.direct, panel, panels, group, step, next,
                       tile);
      panel += panels;
    }
  }

  // All row tiles of one tile of panels. `tile` holds what they have in common.
  void MultiplyRowTiles(DenseTileKernel kernel, int64_t panel, int64_t panels, int64_t group,
                        int64_t step, const std::byte* next, DenseTile& tile) {
    const bool first = step == 0;
    const bool last = step + tile.steps >= product_.steps;
    // Each row tile prefetches its share of the next panels; the last ones may find it done.
    const int64_t lines = CeilDiv(8 * reader_.step_bytes, kLineBytes * row_tiles_);
    const int64_t share_bytes = CeilDiv(tile.steps, 8) * lines * kLineBytes;
    tile.last_columns = last ? LastColumns(product_, panel, panels) : static_cast<int>(kLanes);
    tile.add_to_out = last && product_.accumulate;
    for (int64_t i = 0; i < row_tiles_; ++i) {
      const int64_t row = Share(rows_, i, row_tiles_);
      float* sums = scratch_.sums + row * kGroupColumns + (panel - group) * kLanes;
      tile.rows = static_cast<int>(Share(rows_, i + 1, row_tiles_) - row);
      tile.a = scratch_.x + row * kDensePackedStride;
      tile.start = first ? nullptr : sums;
      tile.start_stride = kGroupColumns;
      const bool wanted = i * share_bytes < tile.steps * reader_.step_bytes;
      tile.prefetch_lines = wanted ? static_cast<int>(lines) : 0;
      tile.prefetch = next + i * share_bytes;
      tile.out =
          last ? product_.out + (row_begin_ + row) * product_.out_stride + panel * kLanes : sums;
      tile.out_stride = last ? product_.out_stride : kGroupColumns;
      kernel(tile);
    }
  }

  const DenseKernels& kernels_;
  const Reader& reader_;
  const DenseProduct& product_;
  const int64_t row_begin_;
  const int64_t rows_;
  const int64_t row_tiles_;
  const int64_t num_panels_;
  const int64_t block_steps_;
  Scratch& scratch_;
};

// Apart from MultiplyDense, so that the few-row path does not reserve the scratch.
[[gnu::noinline]] void MultiplyBlocks(const DenseKernels& kernels, const Reader& reader,
                                      const DenseProduct& product) {
  RowBlock::Scratch scratch;
  const int64_t block_tiles = kMaxBlockRows / kernels.max_rows;
  const int64_t tiles = CeilDiv(product.rows, kernels.max_rows);
  const int64_t blocks = CeilDiv(tiles, block_tiles);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t row = Share(product.rows, Share(tiles, i, blocks), tiles);
    const int64_t end = Share(product.rows, Share(tiles, i + 1, blocks), tiles);
    RowBlock(kernels, reader, product, row, end - row, scratch).Run();
  }
}

}  // namespace

void MultiplyDense(const DenseKernels& kernels, const DenseProduct& product) {
  if (product.rows <= 0 || product.columns <= 0) return;
  const Reader reader = ReaderOf(kernels, product.read);
  assert(reader.direct != nullptr || reader.widen != nullptr);
  const bool few = product.rows <= std::min(kDenseFreeStrideRows, kernels.max_rows);
  if (few && reader.direct != nullptr) {
    StreamPanels(kernels, reader, product);
  } else {
    MultiplyBlocks(kernels, reader, product);
  }
}

}  // namespace refrain::kernels::cpu
