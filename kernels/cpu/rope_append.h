#ifndef REFRAIN_KERNELS_CPU_ROPE_APPEND_H_
#define REFRAIN_KERNELS_CPU_ROPE_APPEND_H_

#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace refrain::kernels::cpu {

// Rotates q in place, rotates k, and writes k and v into the chunks in their packing (see
// attention_args.h); the k part of qkv is left rotated. No two rows may have the same destination.
// Called by CpuBackend, one operation at a time; a few rows are done on the calling thread.
void RopeAppend(ThreadPool& pool, Isa isa, const RopeAppendArgs& args);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ROPE_APPEND_H_
