#ifndef REFRAIN_KERNELS_CPU_LINEAR_H_
#define REFRAIN_KERNELS_CPU_LINEAR_H_

#include "kernels/cpu/activation_buffer.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace refrain::kernels::cpu {

// Linear and GateUp: prepares the activations, cuts the product into jobs of some tiles by some
// rows, and has the pool multiply them. Weights are CpuLinearWeights. How the work is cut does not
// change results under `reproducible` (PackedMatrix), and for quantised weights never, but that AMX
// tiles compute a row as exactly as its group's most exact one.
void Linear(ThreadPool& pool, ActivationBuffer& activations, const LinearArgs& args);
void GateUp(ThreadPool& pool, Isa isa, ActivationBuffer& activations, const GateUpArgs& args);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_LINEAR_H_
