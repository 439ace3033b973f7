#ifndef REFRAIN_KERNELS_CPU_DENSE_KERNELS_H_
#define REFRAIN_KERNELS_CPU_DENSE_KERNELS_H_

#include <cstddef>
#include <cstdint>

// What one instruction-set level gives to dense_matrix.cc: plain structs and function pointers. The
// files of the wide levels include nothing else of ours, so that no inline function compiled with
// wide instructions can be picked by the linker for the rest of the program.

namespace refrain::kernels::cpu {

// Tiles of more rows than this read rows of `a` at the fixed stride below, so that the addresses of
// all rows are one register plus constants. An odd number of cache lines: rows never share a set.
inline constexpr int kDenseFreeStrideRows = 4;
inline constexpr int64_t kDensePackedStride = 592;  // steps

// One register tile: rows x (16 * panels) sums over `steps` steps of k. A step is 4 bytes of each
// row of `a` (one f32, or one pair of bf16).
struct DenseTile {
  // sizes
  int rows = 0;             // [1, DenseKernels::max_rows]
  int panels = 0;           // 1, 2 or 4, at most DenseKernels::panels(rows)
  int64_t steps = 0;        // may be 0
  int last_columns = 16;    // columns of the last panel that are stored
  bool add_to_out = false;  // out += sum instead of out = sum
  int prefetch_lines = 0;   // cache lines to prefetch from each panel's `prefetch` per 8 steps
  // inputs
  const void* a = nullptr;       // [rows, steps]
  int64_t a_stride = 0;          // in steps
  const std::byte* b = nullptr;  // [panels][steps][16] elements of the kernel's form
  int64_t b_panel_bytes = 0;     // from one panel to the next
  const float* start = nullptr;  // [rows, 16 * panels] sums so far; null = zeros
  int64_t start_stride = 0;
  const std::byte* prefetch = nullptr;  // of the first panel; the others prefetch_panel_bytes apart
  int64_t prefetch_panel_bytes = 0;
  // output
  float* out = nullptr;  // [rows, 16 * panels], may be `start`
  int64_t out_stride = 0;
};

using DenseTileKernel = void (*)(const DenseTile& tile);

struct TileKernels;  // tile_kernels.h

struct DenseKernels {
  int max_rows = 0;                   // rows of the largest register tile
  int (*panels)(int rows) = nullptr;  // panels of the widest tile with this many rows: 1, 2 or 4

  DenseTileKernel f32 = nullptr;  // b: [steps][16] f32
  // Kernels that read a narrow form directly; null: it is widened to f32 first.
  DenseTileKernel f16 = nullptr;       // b: [steps][16] f16
  DenseTileKernel bf16 = nullptr;      // b: [steps/2][16][2] bf16, a is f32
  DenseTileKernel bf16_dot = nullptr;  // b: [steps][16][2] bf16, a is bf16 pairs; null: no such
                                       // instructions
  // Widens `steps` steps of one panel to [steps][16] f32.
  void (*widen_f16)(const std::byte* panel, int64_t steps, float* out) = nullptr;
  void (*widen_bf16)(const std::byte* panel, int64_t steps, float* out) = nullptr;

  const TileKernels* tiles = nullptr;  // for many rows; null: no tiles
};

DenseKernels PortableDenseKernels();
DenseKernels Avx2DenseKernels();
DenseKernels Avx512DenseKernels();
DenseKernels Avx512Bf16DenseKernels();  // adds bf16_dot to the kernels of kAvx512

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_DENSE_KERNELS_H_
