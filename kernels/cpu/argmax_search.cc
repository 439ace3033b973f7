#include "kernels/cpu/argmax_search.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_linear_weight.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/elementwise_kernels.h"
#include "kernels/cpu/product_jobs.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {
namespace {

// Products that wait to be looked at, on the stack of the thread that computes them: they should
// still be in its first-level cache then.
constexpr int64_t kProducts = 8 * 1024;

constexpr double kFloatError = 0x1p-24;  // of one rounding, relative
// Products of larger activations might overflow.
constexpr double kLargestProduct = 1e30;

// Roundings that any term of a product goes through: its own, and the sums behind it, of which a
// block has at most four (two halves, a minimum each).
double Roundings(int64_t k) {
  const int64_t blocks = k / kBlockK;
  return 4.0 * static_cast<double>(blocks) + 16;
}

// Rows of one job where products are rough by tiles: few enough that pairs of weight tiles have
// room in kProducts.
constexpr int64_t kTileJobRows = 128;
static_assert(kTileJobRows % kTileRows == 0 && 2 * kTileN * kTileJobRows <= kProducts);

float Bf16ToFloat(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

// Element i of block `block` of a row's rough activations.
double RoughElement(const Activations& x, int64_t row, int64_t block, int i) {
  if (x.tiles.high != nullptr) {
    static_assert(kTileK == kBlockK);
    const int64_t tile = row / kTileRows * x.tiles.steps + block;
    return Bf16ToFloat(x.tiles.high[tile * kTileElements + row % kTileRows * kTileK + i]);
  }
  const int64_t at = row * (x.k / kBlockK) + block;
  return x.rough.scales[at] * static_cast<double>(x.rough.digits[at * kBlockK + i]);
}

WorkGrid CutRoughWork(const Activations& x, int64_t tiles, int threads) {
  if (x.tiles.high == nullptr) return CutWork(tiles, x.rows, x.k, threads);
  WorkGrid grid = CutTileWork(tiles, x.rows, x.k, threads, TileJobKind::kPairs);
  grid.rows_per_job = std::min(grid.rows_per_job, kTileJobRows);
  return grid;
}

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Tiles of one row that are computed again at most: what that costs is little beside the others.
size_t MostNear(int64_t tiles) { return static_cast<size_t>(std::max<int64_t>(tiles / 32, 24)); }

static_assert(kTileN == 16);  // ElementwiseKernels::bound

}  // namespace

ArgMaxSearch::ArgMaxSearch(Isa isa) : kernels_(&ElementwiseFor(isa)) {}

void ArgMaxSearch::MeasureErrors(ThreadPool& pool, const Activations& x) {
  errors_.resize(x.rows);
  const int64_t blocks = x.k / kBlockK;
  constexpr int64_t kRowsAlone = 4;
  pool.ParallelFor(x.rows, kRowsAlone, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      double error = 0, rough_size = 0, size15 = 0;  // squares
      for (int64_t block = row * blocks; block < (row + 1) * blocks; ++block) {
        const int8_t* const high = x.fixed.digits + block * 2 * kBlockK;
        const int8_t* const low = high + kBlockK;
        const double scale15 = x.fixed.scales[block];
        for (int i = 0; i < kBlockK; ++i) {
          const double x15 = scale15 * ((1 << kDigitBits) * high[i] + low[i]);
          const double rough = RoughElement(x, row, block - row * blocks, i);
          error += (rough - x15) * (rough - x15);
          rough_size += rough * rough;
          size15 += x15 * x15;
        }
      }
      const double of_weights = x.tiles.high == nullptr ? 0 : kWeightError * std::sqrt(rough_size);
      errors_[row] = {std::sqrt(error) + of_weights, std::sqrt(std::max(rough_size, size15))};
    }
  });
}

void ArgMaxSearch::Screen(const PackedMatrix& matrix, const Activations& x, int64_t row_begin,
                          int64_t row_end, int64_t tile_begin, int64_t tile_end, float* floors) {
  alignas(64) float products[kProducts];
  // An even number: kernels for many rows take tiles in pairs.
  const int64_t step = kProducts / ((row_end - row_begin) * kTileN) / 2 * 2;
  assert(step > 0);
  const int64_t tiles = (matrix.n() + kTileN - 1) / kTileN;
  const ProductBounds& bounds = *matrix.bounds();
  const double lost_in_sums = 2 * Roundings(x.k) * kFloatError * bounds.terms;
  std::fill(floors + row_begin, floors + row_end, kNone);
  for (int64_t tile = tile_begin; tile < tile_end; tile += step) {
    const int64_t end = std::min(tile + step, tile_end);
    const int64_t column = tile * kTileN;
    const int64_t columns = std::min(end * kTileN, matrix.n()) - column;
    matrix.MultiplyRough(x, row_begin, row_end, tile, end, products - row_begin * columns - column,
                         columns);
    for (int64_t row = row_begin; row < row_end; ++row) {
      // A little more than computed, for the roundings of the bounds themselves and of products
      // too small for a float's full precision.
      const RowError& error = errors_[row];
      const auto by_norm = static_cast<float>(error.error * 1.0001);
      const auto fixed = static_cast<float>(error.size * lost_in_sums * 1.0001 + 1e-30);
      float* const of_row = products + (row - row_begin) * columns;
      Exclude(row, column, columns, of_row);
      float* const ceilings = &ceilings_[row * tiles + tile];
      const float floor =
          kernels_->bound(of_row, &bounds.norms[column], columns, by_norm, ceilings) - fixed;
      for (int64_t i = 0; i < end - tile; ++i) ceilings[i] += fixed;
      floors[row] = std::max(floors[row], floor);
    }
  }
}

void ArgMaxSearch::Gather(int64_t row, int64_t rows, int64_t tiles, int64_t jobs) {
  float floor = kNone;
  for (int64_t job = 0; job < jobs; ++job) floor = std::max(floor, floors_[job * rows + row]);
  const size_t before = near_.size();
  const float* const ceilings = &ceilings_[row * tiles];
  for (int64_t tile = 0; tile < tiles; ++tile) {
    if (ceilings[tile] >= floor) near_.push_back({row, tile, 0, 0});
  }
  if (near_.size() - before > MostNear(tiles)) near_.resize(before);
}

void ArgMaxSearch::KeepExcluded(std::span<const LinearArgMaxArgs::Excluded> excluded,
                                int64_t rows) {
  excluded_.clear();
  excluded_begin_.clear();
  for (const LinearArgMaxArgs::Excluded& one : excluded) {
    assert(one.row < rows && static_cast<int64_t>(excluded_begin_.size()) <= one.row + 1);
    excluded_begin_.resize(one.row + 1, static_cast<int64_t>(excluded_.size()));
    excluded_.push_back(one.index);
  }
  excluded_begin_.resize(rows + 1, static_cast<int64_t>(excluded_.size()));
}

void ArgMaxSearch::Exclude(int64_t row, int64_t column, int64_t columns, float* products) const {
  for (int64_t i = excluded_begin_[row]; i < excluded_begin_[row + 1]; ++i) {
    const int64_t at = excluded_[i] - column;
    if (at >= 0 && at < columns) products[at] = kNone;
  }
}

void ArgMaxSearch::Compute(const PackedMatrix& matrix, const Activations& x, Near* near) const {
  float products[kTileN];
  const int64_t column = near->tile * kTileN;
  matrix.Multiply(x, near->row, near->row + 1, near->tile, near->tile + 1, products - column,
                  /*out_stride=*/0, /*accumulate=*/false, /*reproducible=*/true);
  const int64_t columns = std::min<int64_t>(kTileN, matrix.n() - column);
  Exclude(near->row, column, columns, products);
  const float* const greatest = std::max_element(products, products + columns);
  near->column = static_cast<int32_t>(column + (greatest - products));
  near->product = *greatest;
}

void ArgMaxSearch::Run(ThreadPool& pool, ActivationBuffer& activations,
                       const LinearArgMaxArgs& args) {
  const auto& weight = static_cast<const CpuLinearWeight&>(*args.weight);
  const int64_t rows = args.x.rows;
  assert(args.x.cols == weight.k() && static_cast<int64_t>(args.out.size()) == rows);
  std::fill(args.out.begin(), args.out.end(), LinearArgMaxArgs::kUndecided);
  const PackedMatrix& matrix = *weight.parts()[0].matrix;
  if (rows == 0 || weight.parts().size() > 1 || matrix.bounds() == nullptr) return;

  ActivationForms forms{.fixed = true};
  forms.Add(matrix.rough_form(rows), /*mixes=*/false);
  const Activations x = activations.Prepare(args.x, forms, {}, pool);
  MeasureErrors(pool, x);
  KeepExcluded(args.excluded, rows);
  const int64_t tiles = weight.tiles();
  const WorkGrid grid = CutRoughWork(x, tiles, pool.threads());
  ceilings_.resize(std::max<size_t>(ceilings_.size(), rows * tiles));
  floors_.resize(std::max<size_t>(floors_.size(), grid.tile_jobs() * rows));
  ForJobs(pool, grid,
          [&](int64_t row_begin, int64_t row_end, int64_t tile_begin, int64_t tile_end) {
            Screen(matrix, x, row_begin, row_end, tile_begin, tile_end,
                   &floors_[tile_begin / grid.tiles_per_job * rows]);
          });

  near_.clear();
  const double terms = std::max(matrix.bounds()->terms, 1.0f);
  for (int64_t row = 0; row < rows; ++row) {
    // Not where either is NaN.
    if (errors_[row].size * terms < kLargestProduct) Gather(row, rows, tiles, grid.tile_jobs());
  }
  pool.ParallelFor(static_cast<int64_t>(near_.size()), /*grain=*/2,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) Compute(matrix, x, &near_[i]);
                   });
  const Near* best = nullptr;
  for (const Near& near : near_) {
    if (near.product == kNone) continue;  // all of the tile is excluded
    if (best == nullptr || best->row != near.row || near.product > best->product) best = &near;
    args.out[near.row] = best->column;
  }
}

}  // namespace refrain::kernels::cpu
