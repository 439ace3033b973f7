#ifndef REFRAIN_TESTS_KERNELS_CPU_ATTENTION_EMULATED_KERNELS_H_
#define REFRAIN_TESTS_KERNELS_CPU_ATTENTION_EMULATED_KERNELS_H_

#include "kernels/cpu/attention_kernels.h"
#include "tests/kernels/cpu/emulated_tile_log.h"

namespace refrain::kernels::cpu {

// The attention kernels of kAvx512Vnni, kAvx512Bf16 and kAmx compiled from the same source as the
// real ones over the instructions of emulated_instructions.h. All need AVX-512 F, BW, DQ and VL to
// run.
AttentionKernels EmulatedVnniAttentionKernels();
AttentionKernels EmulatedBf16AttentionKernels();
AttentionKernels EmulatedAmxAttentionKernels();

// What the emulated tiles of all threads have seen since the last call. Call it while no attention
// runs.
EmulatedTileLog TakeAttentionTileLog();

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_TESTS_KERNELS_CPU_ATTENTION_EMULATED_KERNELS_H_
