#ifndef REFRAIN_KERNELS_CPU_ELEMENTWISE_H_
#define REFRAIN_KERNELS_CPU_ELEMENTWISE_H_

#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace refrain::kernels::cpu {

struct ElementwiseKernels;

// The loops of the nearest level at or below `isa` (elementwise_kernels.h).
const ElementwiseKernels& ElementwiseFor(Isa isa);

// Operations of the CPU back end that go over rows once. Called by CpuBackend, one at a time, from
// the engine thread; a few rows are done on that thread without waking the pool. A row's result
// depends on the row and the level only, not on the number of rows or threads. Inputs and outputs
// are f32; `out` may be one of the inputs.
void RmsNorm(ThreadPool& pool, Isa isa, const RmsNormArgs& args);
void SwiGlu(ThreadPool& pool, Isa isa, const SwiGluArgs& args);
void Add(ThreadPool& pool, Isa isa, const AddArgs& args);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ELEMENTWISE_H_
