#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <span>

#include "kernels/cpu/cpu_linear_weight.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/product_jobs.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_matrix.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tile_rows_memory.h"

namespace refrain::kernels::cpu {
namespace {

// Products of `up` that wait for those of `gate`, on the stack of the thread that computes them.
constexpr int64_t kUpElements = 32 * 1024;

const CpuLinearWeight& Weight(const LinearWeight* weight) {
  return static_cast<const CpuLinearWeight&>(*weight);
}

// Whether products take activations of 8 bits, with 15 for rows that are not coarse. Wherever one
// is: what a row is computed with must not hang on the others, but that tiles and second copies may
// be more exact.
bool MixesDigits(std::span<const uint8_t> coarse_rows) {
  return std::any_of(coarse_rows.begin(), coarse_rows.end(), [](uint8_t is) { return is != 0; });
}

void AddForms(const CpuLinearWeight& weight, const ProductKind& kind, ActivationForms& forms) {
  for (const CpuLinearWeight::Part& part : weight.parts()) {
    forms.Add(*part.matrix, kind);
  }
}

WorkGrid Cut(const ActivationForms& forms, const CpuLinearWeight& weight, int64_t rows,
             const ThreadPool& pool, TileJobKind kind) {
  return forms.tiles ? CutTileWork(weight.tiles(), rows, weight.k(), pool.threads(), kind)
                     : CutWork(weight.tiles(), rows, weight.k(), pool.threads());
}

// Tiles of both weights have the same output columns.
bool SameTiles(const CpuLinearWeight& a, const CpuLinearWeight& b) {
  return a.parts().size() == 1 && b.parts().size() == 1 && a.n() == b.n();
}

// What all parts of a weight read alike; nullopt where they do not.
std::optional<ActivationForm> FormOf(const CpuLinearWeight& weight, const ProductKind& kind) {
  const ActivationForm first = weight.parts()[0].matrix->form(kind);
  for (const CpuLinearWeight::Part& part : weight.parts()) {
    if (part.matrix->form(kind) != first) return std::nullopt;
  }
  return first;
}

bool IsOfTiles(std::optional<ActivationForm> form) {
  return form == ActivationForm::kTiles || form == ActivationForm::kExactTiles;
}

// Whether GateUp's results can be the tiles that their reader wants: two panels are one step of its
// k then.
bool GoesToTiles(const GateUpArgs& args, const ProductKind& kind) {
  if (args.reader == nullptr || args.out.cols % kTileK != 0) return false;
  for (const LinearWeight* weight : {args.gate, args.up, args.reader}) {
    if (!IsOfTiles(FormOf(Weight(weight), kind))) return false;
  }
  return true;
}

// One step of `rows` rows of the group that begins with `row`. May overwrite gate.
void PackSwiGlu(const QuantizedKernels& kernels, float* gate, const float* up, int64_t row,
                int64_t rows, int64_t step, TileRowsMemory& to) {
  uint16_t* const high = to.high(row) + step;
  uint16_t* const low = to.low(row);
  if (low == nullptr) return kernels.tiles->pack_swiglu(gate, up, rows, high);
  kernels.silu_mul(gate, up, rows * kTileK);
  for (int64_t r = 0; r < rows; ++r) {
    kernels.tiles->pack_row(gate + r * kTileK, kTileK, high + r * kTileK, low + step + r * kTileK);
  }
}

// GateUp where GoesToTiles: no float of the results leaves the caches.
void GateUpToTiles(ThreadPool& pool, Isa isa, const Activations& x, const GateUpArgs& args,
                   TileRowsMemory& to) {
  const CpuLinearWeight& gate = Weight(args.gate);
  const CpuLinearWeight& up = Weight(args.up);
  const QuantizedKernels& kernels = QuantizedKernelsFor(isa);
  ForJobs(pool,
          CutTileWork(gate.tiles(), args.x.rows, gate.k(), pool.threads(), TileJobKind::kPairs),
          [&](int64_t row_begin, int64_t row_end, int64_t tile_begin, int64_t tile_end) {
            alignas(64) float products[kUpElements], up_products[kUpElements];
            assert((row_end - row_begin) * kTileK <= kUpElements && tile_begin % 2 == 0);
            for (int64_t tile = tile_begin; tile < tile_end; tile += 2) {
              const int64_t first = row_begin * kTileK + tile * kTileN;
              gate.Multiply(x, row_begin, row_end, tile, tile + 2, products - first, kTileK, false,
                            args.reproducible);
              up.Multiply(x, row_begin, row_end, tile, tile + 2, up_products - first, kTileK, false,
                          args.reproducible);
              const int64_t step = tile / 2 * kTileElements;
              for (int64_t row = row_begin; row < row_end; row += kTileRows) {
                PackSwiGlu(kernels, products + (row - row_begin) * kTileK,
                           up_products + (row - row_begin) * kTileK, row,
                           std::min(row_end - row, int64_t{kTileRows}), step, to);
              }
            }
          });
}

}  // namespace

void Linear(ThreadPool& pool, ActivationBuffer& activations, const LinearArgs& args) {
  const CpuLinearWeight& weight = Weight(args.weight);
  assert(args.x.cols == weight.k() && args.out.cols == weight.n() && args.x.rows == args.out.rows);
  const int64_t rows = args.x.rows;
  if (rows == 0) return;
  assert(args.coarse_rows.empty() || !args.reproducible);
  ActivationForms forms;
  AddForms(weight, {rows, args.reproducible, MixesDigits(args.coarse_rows)}, forms);
  const Activations x = activations.Prepare(args.x, forms, args.coarse_rows, pool);
  ForJobs(pool, Cut(forms, weight, rows, pool, TileJobKind::kWhole),
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
  activations.ForgetTiles();
  const int64_t rows = args.x.rows;
  if (rows == 0) return;
  assert(args.coarse_rows.empty() || !args.reproducible);
  const ProductKind kind = {rows, args.reproducible, MixesDigits(args.coarse_rows)};
  ActivationForms forms;
  AddForms(gate, kind, forms);
  AddForms(up, kind, forms);
  const Activations x = activations.Prepare(args.x, forms, args.coarse_rows, pool);
  if (GoesToTiles(args, kind)) {
    const bool exact = FormOf(Weight(args.reader), kind) == ActivationForm::kExactTiles;
    return GateUpToTiles(pool, isa, x, args,
                         activations.TilesInstead(args.out, exact, args.coarse_rows));
  }
  const auto silu_mul = QuantizedKernelsFor(isa).silu_mul;
  float* out = args.out.F32Row(0);
  const int64_t stride = args.out.stride;

  ForJobs(
      pool, Cut(forms, gate, rows, pool, TileJobKind::kPairs),
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
