#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cassert>

#include "kernels/cpu/cpu_linear_weight.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_matrix.h"

namespace refrain::kernels::cpu {
namespace {

// Activations of one job should leave room for weights in a second-level cache of 512 KiB.
constexpr int64_t kJobActivations = 256 * 1024;
constexpr int64_t kMaxJobRows = 192;
constexpr int64_t kMinJobRows = 24;
// Enough that a thread which was held up, or an odd number of jobs, costs the others little. A job
// of few rows is short, and its threads read streams of weights that should be long.
constexpr int64_t kJobsPerThread = 4;
constexpr int64_t kManyRowJobsPerThread = 12;
// Up to this many rows a product waits for memory alone, which serves threads that read one behind
// the other better than threads that read apart.
constexpr int64_t kRowsOfOneStream = 6;

// Products of `up` that wait for those of `gate`, on the stack of the thread that computes them.
constexpr int64_t kUpElements = 32 * 1024;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

const CpuLinearWeight& Weight(const LinearWeight* weight) {
  return static_cast<const CpuLinearWeight&>(*weight);
}

void AddForms(const CpuLinearWeight& weight, int64_t rows, bool reproducible,
              ActivationForms& forms) {
  for (const CpuLinearWeight::Part& part : weight.parts()) {
    forms.Add(part.matrix->form(rows, reproducible));
  }
}

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

// Tiles of both weights have the same output columns.
bool SameTiles(const CpuLinearWeight& a, const CpuLinearWeight& b) {
  return a.parts().size() == 1 && b.parts().size() == 1 && a.n() == b.n();
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
  return grid;
}

void Linear(ThreadPool& pool, ActivationBuffer& activations, const LinearArgs& args) {
  const CpuLinearWeight& weight = Weight(args.weight);
  assert(args.x.cols == weight.k() && args.out.cols == weight.n() && args.x.rows == args.out.rows);
  const int64_t rows = args.x.rows;
  if (rows == 0) return;
  ActivationForms forms;
  AddForms(weight, rows, args.reproducible, forms);
  const Activations x = activations.Prepare(args.x, forms, pool);
  ForJobs(pool, CutWork(weight.tiles(), rows, weight.k(), pool.threads()),
          [&](int64_t row_begin, int64_t row_end, int64_t tile_begin, int64_t tile_end) {
            weight.Multiply(x, row_begin, row_end, tile_begin, tile_end, args.out.F32Row(0),
                            args.out.stride, args.accumulate, args.reproducible);
          });
}

void GateUp(ThreadPool& pool, Isa isa, ActivationBuffer& activations, const GateUpArgs& args) {
  const CpuLinearWeight& gate = Weight(args.gate);
  const CpuLinearWeight& up = Weight(args.up);
  assert(gate.n() == up.n() && gate.k() == up.k() && SameTiles(gate, up));
  assert(args.x.cols == gate.k() && args.out.cols == gate.n() && args.x.rows == args.out.rows);
  const int64_t rows = args.x.rows;
  if (rows == 0) return;
  ActivationForms forms;
  AddForms(gate, rows, args.reproducible, forms);
  AddForms(up, rows, args.reproducible, forms);
  const Activations x = activations.Prepare(args.x, forms, pool);
  const auto silu_mul = QuantizedKernelsFor(isa).silu_mul;
  float* out = args.out.F32Row(0);
  const int64_t stride = args.out.stride;

  ForJobs(
      pool, CutWork(gate.tiles(), rows, gate.k(), pool.threads()),
      [&](int64_t row_begin, int64_t row_end, int64_t tile_begin, int64_t tile_end) {
        alignas(64) float up_products[kUpElements];
        const int64_t job_rows = row_end - row_begin;
        // An even number, as in CutWork.
        const int64_t step = std::max<int64_t>(1, kUpElements / (job_rows * kTileN) / 2 * 2);
        for (int64_t tile = tile_begin; tile < tile_end; tile += step) {
          const int64_t end = std::min(tile + step, tile_end);
          const int64_t column = tile * kTileN;
          const int64_t columns = std::min(end * kTileN, gate.n()) - column;
          gate.Multiply(x, row_begin, row_end, tile, end, out, stride, false, args.reproducible);
          up.Multiply(x, row_begin, row_end, tile, end, up_products - row_begin * columns - column,
                      columns, false, args.reproducible);
          for (int64_t row = row_begin; row < row_end; ++row) {
            silu_mul(out + row * stride + column, up_products + (row - row_begin) * columns,
                     columns);
          }
        }
      });
}

}  // namespace refrain::kernels::cpu
