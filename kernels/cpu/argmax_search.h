#ifndef REFRAIN_KERNELS_CPU_ARGMAX_SEARCH_H_
#define REFRAIN_KERNELS_CPU_ARGMAX_SEARCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/activation_buffer.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace refrain::kernels::cpu {

struct ElementwiseKernels;

// LinearArgMax over a quantised weight: the index of the greatest of the products that Linear would
// compute (reproducible) with activations of 15 bits, with most of them computed roughly: with 8
// bits only, which takes half the time, or by tiles of bf16.
//
// With x' and x the rough activations and those of 15 bits, a product is off by (x' - x) w, which
// is at most |x' - x| |w|, by x' (w' - w) where weights are rounded, too, and by what sums in
// floats lose. So what is further below the greatest than that can do cannot be it; the few tiles
// with others are computed again with 15 bits, bit for bit as Linear does. The answer is never a
// guess: a row with too many such tiles, or with activations so large that products might not be
// finite, is left undecided, and so is every row where a weight is not finite. What is excluded
// counts as minus infinity.
//
// Keeps its memory from call to call; it only grows. Engine thread only.
class ArgMaxSearch {
 public:
  explicit ArgMaxSearch(Isa isa);

  void Run(ThreadPool& pool, ActivationBuffer& activations, const LinearArgMaxArgs& args);

 private:
  // Of one row's activations.
  struct RowError {
    double error = 0;  // times |w|: how far a product is off but for what sums lose
    double size = 0;   // the larger of |x'| and |x|
  };
  struct Near {
    int64_t row, tile;
    int32_t column;  // of the tile's greatest product, the lowest of equal ones
    float product;
  };

  void MeasureErrors(ThreadPool& pool, const Activations& x);
  // Rough products of some rows and tiles: fills their ceilings_, and floors[row_begin, row_end).
  void Screen(const PackedMatrix& matrix, const Activations& x, int64_t row_begin, int64_t row_end,
              int64_t tile_begin, int64_t tile_end, float* floors);
  // Tiles that may have a row's greatest product, put at the end of near_; none if they are many.
  void Gather(int64_t row, int64_t rows, int64_t tiles, int64_t jobs);
  void Compute(const PackedMatrix& matrix, const Activations& x, Near* near) const;
  void KeepExcluded(std::span<const LinearArgMaxArgs::Excluded> excluded, int64_t rows);
  // products[0, columns): those of columns [column, column + columns).
  void Exclude(int64_t row, int64_t column, int64_t columns, float* products) const;

  const ElementwiseKernels* kernels_;
  std::vector<RowError> errors_;         // [rows]
  std::vector<float> ceilings_;          // [rows, tiles] what a tile's products are at most
  std::vector<float> floors_;            // [tile jobs, rows] what the greatest product is at least
  std::vector<Near> near_;               // by row, then by tile
  std::vector<int32_t> excluded_;        // indexes, by row
  std::vector<int64_t> excluded_begin_;  // [rows + 1] where each row's begin
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ARGMAX_SEARCH_H_
