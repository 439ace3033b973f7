#ifndef REFRAIN_KERNELS_CPU_LEVEL_CHECK_H_
#define REFRAIN_KERNELS_CPU_LEVEL_CHECK_H_

#include "absl/status/status.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/dense_kernels.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/quantized_kernels.h"

namespace refrain::kernels::cpu {

// Whether a level's attention and its products compute what they should on this machine: a few
// small shapes over numbers that every level holds exactly, compared with plain loops. For the
// start of the back end, where it takes a few milliseconds: kernels for instructions that no build
// machine has must not be trusted unseen. It does not replace the conformance tests, and an
// instruction that the machine refuses to run ends the process.
//
// INTERNAL names the operation, the element type and the first value that is wrong.
absl::Status CheckLevel(Isa isa);

absl::Status CheckAttention(const AttentionKernels& kernels);
absl::Status CheckDenseProducts(const DenseKernels& kernels);
absl::Status CheckQuantizedProducts(const QuantizedKernels& kernels);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_LEVEL_CHECK_H_
