#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cassert>
#include <span>

#include "kernels/cpu/cpu_linear_weight.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/product_jobs.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_matrix.h"

namespace refrain::kernels::cpu {
namespace {

// Products of `up` that wait for those of `gate`, on the stack of the thread that computes them.
constexpr int64_t kUpElements = 32 * 1024;

const CpuLinearWeight& Weight(const LinearWeight* weight) {
  return static_cast<const CpuLinearWeight&>(*weight);
}

// Whether products take activations of 8 bits, with 15 for rows that are not coarse. Wherever one
// is: what a row is computed with must not hang on the others. (The others' bits do not.)
bool MixesDigits(std::span<const uint8_t> coarse_rows) {
  return std::any_of(coarse_rows.begin(), coarse_rows.end(), [](uint8_t is) { return is != 0; });
}

void AddForms(const CpuLinearWeight& weight, int64_t rows, bool reproducible, bool mixes,
              ActivationForms& forms) {
  for (const CpuLinearWeight::Part& part : weight.parts()) {
    forms.Add(part.matrix->form(rows, reproducible), mixes);
  }
}

WorkGrid Cut(const ActivationForms& forms, const CpuLinearWeight& weight, int64_t rows,
             const ThreadPool& pool) {
  return (forms.tiles ? CutTileWork : CutWork)(weight.tiles(), rows, weight.k(), pool.threads());
}

// Tiles of both weights have the same output columns.
bool SameTiles(const CpuLinearWeight& a, const CpuLinearWeight& b) {
  return a.parts().size() == 1 && b.parts().size() == 1 && a.n() == b.n();
}

}  // namespace

void Linear(ThreadPool& pool, ActivationBuffer& activations, const LinearArgs& args) {
  const CpuLinearWeight& weight = Weight(args.weight);
  assert(args.x.cols == weight.k() && args.out.cols == weight.n() && args.x.rows == args.out.rows);
  const int64_t rows = args.x.rows;
  if (rows == 0) return;
  assert(args.coarse_rows.empty() || !args.reproducible);
  ActivationForms forms;
  AddForms(weight, rows, args.reproducible, MixesDigits(args.coarse_rows), forms);
  const Activations x = activations.Prepare(args.x, forms, args.coarse_rows, pool);
  ForJobs(pool, Cut(forms, weight, rows, pool),
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
  assert(args.coarse_rows.empty() || !args.reproducible);
  const bool mixes = MixesDigits(args.coarse_rows);
  ActivationForms forms;
  AddForms(gate, rows, args.reproducible, mixes, forms);
  AddForms(up, rows, args.reproducible, mixes, forms);
  const Activations x = activations.Prepare(args.x, forms, args.coarse_rows, pool);
  const auto silu_mul = QuantizedKernelsFor(isa).silu_mul;
  float* out = args.out.F32Row(0);
  const int64_t stride = args.out.stride;

  ForJobs(
      pool, Cut(forms, gate, rows, pool),
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
