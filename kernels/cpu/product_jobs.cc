#include "kernels/cpu/product_jobs.h"

#include <algorithm>

#include "kernels/cpu/packed_matrix.h"

namespace refrain::kernels::cpu {
namespace {

// Activations of one job should leave room for weights in a second-level cache of 512 KiB.
constexpr int64_t kJobActivations = 256 * 1024;
constexpr int64_t kMaxJobRows = 192;
constexpr int64_t kMinJobRows = 24;
constexpr int64_t kJobRowUnit = 6;  // rows that kernels for many take at once
// Enough that a thread which was held up, or an odd number of jobs, costs the others little. A job
// of few rows is short, and its threads read streams of weights that should be long.
constexpr int64_t kJobsPerThread = 4;
constexpr int64_t kManyRowJobsPerThread = 12;
// Of tiles: half of a second-level cache of 2 MiB, a quarter where results lie beside.
constexpr int64_t kTileJobActivations = 1024 * 1024;
constexpr int64_t kPairJobActivations = 512 * 1024;
// For fewer rows unpacking weights takes a third of the time and more: then activations may be half
// of a cache, and more where the kernels take k in blocks.
constexpr int64_t kMinPairRows = 128;
constexpr int64_t kMinBlockRows = 256;
constexpr int64_t kMaxTileJobRows = 1024;
constexpr int64_t kRowUnit = 32;  // two groups
// Threads divide rows and not weights where each gets a row for so many columns: then activations
// and results stay in the caches of one core, which costs less than that each unpacks all weights;
// of more columns than this it does not, for weights come from memory.
constexpr int64_t kColumnsPerOwnRow = 18;
constexpr int64_t kMostOwnColumns = 1536;
// Where many threads would have a few jobs each, some of them one more than others, other cuts are
// looked at, with up to so many jobs a thread. One is taken that saves an eighth of the time: the
// sizes above are measured, this is reckoned.
constexpr int64_t kMostRounds = 12;
constexpr int64_t kLeastGain = 8;
// What unpacking weights takes in such a reckoning, in rows of the product behind it.
constexpr int64_t kUnpackRows = 8;
constexpr int64_t kTileUnpackRows = 64;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of a job's rows and tiles.
struct JobUnits {
  int64_t rows;
  int64_t tiles;
  int64_t unpack_rows;
};

// Until the last thread is done, in tiles of a row.
int64_t Reckon(const WorkGrid& grid, int threads, int64_t unpack_rows) {
  return CeilDiv(grid.tile_jobs() * grid.row_jobs(), threads) * grid.tiles_per_job *
         (grid.rows_per_job + unpack_rows);
}

// `grid`, or one of its jobs' size or smaller that keeps all threads busy until the end.
WorkGrid Balance(const WorkGrid& grid, int threads, const JobUnits& units) {
  const int64_t jobs = grid.tile_jobs() * grid.row_jobs();
  const int64_t time = Reckon(grid, threads, units.unpack_rows);
  if (jobs >= kMostRounds * threads) return grid;
  WorkGrid best = grid;
  int64_t least = time - CeilDiv(time, kLeastGain) + 1;
  for (int64_t parts = grid.row_jobs(); parts <= 2 * grid.row_jobs(); parts += grid.row_jobs()) {
    for (int64_t rounds = 1; rounds <= kMostRounds; ++rounds) {
      const int64_t tile_jobs = rounds * threads / parts;
      if (tile_jobs == 0) continue;
      WorkGrid other = grid;
      other.rows_per_job =
          std::min(grid.rows_per_job, CeilDiv(CeilDiv(grid.rows, parts), units.rows) * units.rows);
      other.tiles_per_job =
          std::min(grid.tiles, CeilDiv(CeilDiv(grid.tiles, tile_jobs), units.tiles) * units.tiles);
      if (other.tiles_per_job > grid.tiles_per_job) continue;
      const int64_t its = Reckon(other, threads, units.unpack_rows);
      if (its < least) {
        least = its;
        best = other;
      }
    }
  }
  return best;
}

// Into how many parts, each for as many threads, the rows of a product by TileRows are divided.
int64_t RowParts(int64_t tiles, int64_t rows, int threads) {
  const int64_t columns = tiles * kTileN;
  if (columns > kMostOwnColumns) return 1;
  for (int64_t parts = threads; parts > 1; --parts) {
    if (threads % parts == 0 && rows * kColumnsPerOwnRow >= parts * columns) return parts;
  }
  return 1;
}

}  // namespace

WorkGrid CutWork(int64_t tiles, int64_t rows, int64_t k, int threads) {
  WorkGrid grid{tiles, rows, tiles, rows};
  if (threads == 1 && rows <= kMinJobRows) return grid;
  const int64_t jobs =
      threads == 1 ? 1 : threads * (rows <= kMinJobRows ? kJobsPerThread : kManyRowJobsPerThread);
  const int64_t row_limit = std::clamp(kJobActivations / k, kMinJobRows, kMaxJobRows);
  grid.rows_per_job = CeilDiv(rows, CeilDiv(rows, row_limit));
  const int64_t tile_jobs = CeilDiv(jobs, grid.row_jobs());
  // An even number: kernels for many rows take tiles in pairs.
  grid.tiles_per_job = std::min(tiles, CeilDiv(CeilDiv(tiles, tile_jobs), 2) * 2);
  const bool few = rows <= kRowsOfOneStream;
  return Balance(grid, threads, {few ? rows : kJobRowUnit, few ? 1 : 2, kUnpackRows});
}

WorkGrid CutTileWork(int64_t tiles, int64_t rows, int64_t k, int threads, TileJobKind kind) {
  const int64_t fit =
      std::clamp(kTileJobActivations / (2 * k) / kRowUnit * kRowUnit, kRowUnit, kMaxTileJobRows);
  const auto cut = [&](int64_t row_limit) {
    WorkGrid grid{tiles, rows, tiles, rows};
    const int64_t row_jobs = CeilDiv(rows, row_limit);
    grid.rows_per_job = std::min(rows, CeilDiv(CeilDiv(rows, row_jobs), kRowUnit) * kRowUnit);
    // Activations that do not fit are read again by every job: these are few.
    const int64_t per_thread = grid.rows_per_job > fit ? kJobsPerThread : kManyRowJobsPerThread;
    const int64_t jobs = threads == 1 ? 1 : threads * per_thread;
    const int64_t tile_jobs = CeilDiv(jobs, grid.row_jobs());
    grid.tiles_per_job = std::min(tiles, CeilDiv(CeilDiv(tiles, tile_jobs), 2) * 2);
    return Balance(grid, threads, {kRowUnit, 2, kTileUnpackRows});
  };
  if (kind == TileJobKind::kPairs) {
    const int64_t half = kPairJobActivations / (2 * k) / kRowUnit * kRowUnit;
    return cut(std::min(fit, std::max(half, kMinPairRows)));
  }
  const int64_t own = CeilDiv(CeilDiv(rows, RowParts(tiles, rows, threads)), kRowUnit) * kRowUnit;
  const WorkGrid grid = cut(std::min(own, std::max(fit, kMinBlockRows)));
  // A single pair takes k in one piece: its activations should fit.
  return grid.rows_per_job > fit && grid.tiles_per_job <= 2 ? cut(fit) : grid;
}

}  // namespace refrain::kernels::cpu
