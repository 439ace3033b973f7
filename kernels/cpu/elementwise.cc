#include "kernels/cpu/elementwise.h"

#include <cassert>

#include "kernels/cpu/elementwise_kernels.h"

namespace refrain::kernels::cpu {
namespace {

// Waking the pool costs more than a few rows.
constexpr int64_t kRowsOnCallingThread = 4;

template <typename Fn>
void ForRows(ThreadPool& pool, int64_t rows, const Fn& fn) {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) fn(row);
  };
  if (rows <= kRowsOnCallingThread) {
    range(0, rows);
    return;
  }
  const int64_t grain = rows / (4 * pool.threads());
  pool.ParallelForStretches(rows, grain < 1 ? 1 : grain, range);
}

}  // namespace

const ElementwiseKernels& ElementwiseFor(Isa isa) {
  if (isa >= Isa::kAvx512) return kElementwiseAvx512;
  return isa >= Isa::kAvx2 ? kElementwiseAvx2 : kElementwisePortable;
}

void RmsNorm(ThreadPool& pool, Isa isa, const RmsNormArgs& args) {
  assert(args.out.cols == args.x.cols && args.x.cols % args.groups == 0);
  assert(args.row_indexes.empty() ? args.out.rows == args.x.rows
                                  : args.out.rows == std::ssize(args.row_indexes));
  const int64_t n = args.x.cols / args.groups;
  const ElementwiseKernels& kernels = ElementwiseFor(isa);
  ForRows(pool, args.out.rows, [&](int64_t row) {
    const int64_t from = args.row_indexes.empty() ? row : args.row_indexes[row];
    const float* const x = args.x.F32Row(from);
    float* const out = args.out.F32Row(row);
    for (int64_t begin = 0; begin < args.x.cols; begin += n) {
      kernels.rms_norm(x + begin, args.weight, out + begin, n, args.eps);
    }
  });
}

void SwiGlu(ThreadPool& pool, Isa isa, const SwiGluArgs& args) {
  assert(args.gate.rows == args.up.rows && args.gate.rows == args.out.rows);
  assert(args.gate.cols == args.up.cols && args.gate.cols == args.out.cols);
  const ElementwiseKernels& kernels = ElementwiseFor(isa);
  ForRows(pool, args.out.rows, [&](int64_t row) {
    kernels.swiglu(args.gate.F32Row(row), args.up.F32Row(row), args.out.F32Row(row), args.out.cols);
  });
}

void Add(ThreadPool& pool, Isa isa, const AddArgs& args) {
  assert(args.x.rows == args.y.rows && args.x.cols == args.y.cols);
  const ElementwiseKernels& kernels = ElementwiseFor(isa);
  ForRows(pool, args.x.rows,
          [&](int64_t row) { kernels.add(args.x.F32Row(row), args.y.F32Row(row), args.x.cols); });
}

}  // namespace refrain::kernels::cpu
