#include "kernels/cpu/product_jobs.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <ostream>
#include <queue>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int64_t kTileColumns = 16;

struct Product {
  int64_t columns, k, rows;
  bool as_tiles = false;
  TileJobKind kind = TileJobKind::kWhole;

  WorkGrid Cut(int threads) const {
    const int64_t tiles = (columns + kTileColumns - 1) / kTileColumns;
    return as_tiles ? CutTileWork(tiles, rows, k, threads, kind) : CutWork(tiles, rows, k, threads);
  }
};

std::ostream& operator<<(std::ostream& out, const Product& product) {
  return out << product.columns << " x " << product.k << ", " << product.rows << " rows"
             << (product.as_tiles ? ", as tiles" : "");
}

// Of models of 135 million, a billion and eight billion weights, with one row to a whole prompt.
std::vector<Product> Products() {
  std::vector<Product> products;
  for (const auto& [columns, k] : std::vector<std::pair<int64_t, int64_t>>{{960, 576},
                                                                           {576, 576},
                                                                           {1536, 576},
                                                                           {576, 1536},
                                                                           {3072, 2048},
                                                                           {2048, 2048},
                                                                           {8192, 2048},
                                                                           {2048, 8192},
                                                                           {6144, 4096},
                                                                           {4096, 4096},
                                                                           {14336, 4096},
                                                                           {4096, 14336},
                                                                           {49152, 576},
                                                                           {32003, 4096}}) {
    for (const int64_t rows : {1, 2, 6, 7, 16, 31, 32, 64, 100, 128, 512, 1000}) {
      products.push_back({columns, k, rows});
      if (rows < 16) continue;
      products.push_back({columns, k, rows, true});
      products.push_back({columns, k, rows, true, TileJobKind::kPairs});
    }
  }
  return products;
}

// How much of the threads' time is work when each takes the next job as soon as it is free.
double Busy(const WorkGrid& grid, int threads) {
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> free;
  for (int i = 0; i < threads; ++i) free.push(0);
  int64_t work = 0, end = 0;
  for (int64_t row = 0; row < grid.rows; row += grid.rows_per_job) {
    for (int64_t tile = 0; tile < grid.tiles; tile += grid.tiles_per_job) {
      const int64_t job = std::min(grid.rows_per_job, grid.rows - row) *
                          std::min(grid.tiles_per_job, grid.tiles - tile);
      const int64_t done = free.top() + job;
      free.pop();
      free.push(done);
      work += job;
      end = std::max(end, done);
    }
  }
  return static_cast<double>(work) / static_cast<double>(end * threads);
}

class ProductJobsTest : public ::testing::TestWithParam<int> {};

TEST_P(ProductJobsTest, CoverTheProductOnce) {
  ThreadPool pool(std::min(GetParam(), 3));
  for (const Product& product : Products()) {
    const WorkGrid grid = product.Cut(GetParam());
    std::vector<uint8_t> seen(grid.tiles * grid.rows);
    ForJobs(pool, grid, [&](int64_t row_begin, int64_t row_end, int64_t begin, int64_t end) {
      ASSERT_LT(row_begin, row_end);
      ASSERT_LT(begin, end);
      for (int64_t row = row_begin; row < row_end; ++row) {
        for (int64_t tile = begin; tile < end; ++tile) ++seen[row * grid.tiles + tile];
      }
    });
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), std::ssize(seen)) << product;
  }
}

// Kernels of many rows take tiles in pairs, and those of tiles rows by groups of 16, two at a time.
TEST_P(ProductJobsTest, KeepTheUnitsOfTheKernels) {
  for (const Product& product : Products()) {
    const WorkGrid grid = product.Cut(GetParam());
    if (product.rows > kRowsOfOneStream && grid.tiles_per_job < grid.tiles) {
      EXPECT_EQ(grid.tiles_per_job % 2, 0) << product;
    }
    if (product.as_tiles && grid.rows_per_job < grid.rows) {
      EXPECT_EQ(grid.rows_per_job % 32, 0) << product;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ProductJobsTest, ::testing::Values(1, 2, 3, 16, 24, 48, 96));

TEST(ProductJobsOfManyThreadsTest, KeepThemBusyUntilTheEnd) {
  for (const Product& product : Products()) {
    for (const int threads : {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96}) {
      // A thread needs two tiles at least, and without more for each the last ones make a
      // difference.
      const double tiles = static_cast<double>(product.columns / kTileColumns) / threads;
      const double least = tiles >= 16 ? 0.85 : tiles >= 8 ? 0.8 : tiles >= 4 ? 0.66 : 0.0;
      EXPECT_GE(Busy(product.Cut(threads), threads), least) << product << ", " << threads;
    }
  }
}

// The sizes that were measured to be best on two cores are kept there: a long job reads a long
// stream of weights.
TEST(ProductJobsOfManyThreadsTest, LeaveAGoodCutAlone) {
  const WorkGrid one = Product{4096, 4096, 1}.Cut(2);
  EXPECT_EQ(one.tile_jobs(), 8);
  const WorkGrid many = Product{1536, 576, 512}.Cut(2);
  EXPECT_EQ(many.tile_jobs(), 8);
  EXPECT_EQ(many.row_jobs(), 3);
}

}  // namespace
}  // namespace refrain::kernels::cpu
