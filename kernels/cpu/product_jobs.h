#ifndef REFRAIN_KERNELS_CPU_PRODUCT_JOBS_H_
#define REFRAIN_KERNELS_CPU_PRODUCT_JOBS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/thread_pool.h"

// How products with packed weights are cut into jobs for the pool.

namespace refrain::kernels::cpu {

// How `tiles` x `rows` of a weight with `k` columns are cut into jobs.
struct WorkGrid {
  int64_t tiles = 0, rows = 0;
  int64_t tiles_per_job = 0, rows_per_job = 0;

  int64_t tile_jobs() const { return (tiles + tiles_per_job - 1) / tiles_per_job; }
  int64_t row_jobs() const { return (rows + rows_per_job - 1) / rows_per_job; }
};
WorkGrid CutWork(int64_t tiles, int64_t rows, int64_t k, int threads);
// How the tiles of a job that multiplies TileRows are taken.
enum class TileJobKind : uint8_t {
  kWhole,  // by one call, which takes k in blocks where the rows are more than a cache holds
  kPairs,  // two at a time, with what comes of them beside
};
// The same where rows are multiplied as TileRows: unpacking weights counts, so a job has many rows.
// Jobs of whole calls have no more than a thread's share of them where columns are few: each thread
// then multiplies what it has packed (ForJobs), but for some rows at the borders of its part, and
// few lines go from core to core.
WorkGrid CutTileWork(int64_t tiles, int64_t rows, int64_t k, int threads, TileJobKind kind);

// Up to this many rows a product waits for memory alone, which serves threads that read one behind
// the other better than threads that read apart.
inline constexpr int64_t kRowsOfOneStream = 6;

// Calls fn(row_begin, row_end, tile_begin, tile_end) for every job. Jobs of the same rows follow
// each other, so that their activations stay in the outer caches. With many rows a thread's next
// job is most often the one behind, whose weights the kernels ask for.
template <typename Fn>
void ForJobs(ThreadPool& pool, const WorkGrid& grid, const Fn& fn) {
  const int64_t tile_jobs = grid.tile_jobs();
  const int64_t jobs = tile_jobs * grid.row_jobs();
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t job = begin; job < end; ++job) {
      const int64_t row = job / tile_jobs * grid.rows_per_job;
      const int64_t tile = job % tile_jobs * grid.tiles_per_job;
      fn(row, std::min(row + grid.rows_per_job, grid.rows), tile,
         std::min(tile + grid.tiles_per_job, grid.tiles));
    }
  };
  if (grid.rows <= kRowsOfOneStream) {
    pool.ParallelFor(jobs, 1, run);
  } else {
    pool.ParallelForStretches(jobs, 1, run);
  }
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_PRODUCT_JOBS_H_
