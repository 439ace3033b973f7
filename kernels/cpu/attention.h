#ifndef REFRAIN_KERNELS_CPU_ATTENTION_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_H_

#include <memory>

#include "kernels/attention_args.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"

namespace refrain::kernels::cpu {

struct AttentionKernels;

// Task lists, partial results and per-thread tiles of ChunkAttention, kept between calls so that
// none allocates once sizes have settled. Used by one call at a time.
class AttentionScratch {
 public:
  AttentionScratch();
  ~AttentionScratch();
  AttentionScratch(const AttentionScratch&) = delete;
  AttentionScratch& operator=(const AttentionScratch&) = delete;

 private:
  friend void ChunkAttention(ThreadPool& pool, const AttentionKernels& kernels,
                             const ChunkAttentionArgs& args, AttentionScratch& scratch);
  struct State;
  std::unique_ptr<State> state_;
};

// Attention of a ragged batch of prefill and decode rows over chunked keys and values (see
// attention_args.h). Called by CpuBackend from the engine thread.
//
// A row's keys are cut into segments; each gives a SoftmaxState, and a row's states are merged from
// left to right. Two phases: first the segments worth doing apart, which are those of runs that
// several decoding slots share (their rows become one matrix: K and V are read once), and those of
// slots too long to be left to one thread; then every block of rows walks its own segments, takes
// the states that are there and computes the rest.
//
// With `reproducible`, segments are the 512 keys of DESIGN section 5 counted from each row's own
// start, and the bits of a row do not depend on what else is in the batch, on `mode` or on the
// thread count. Without it segments are cut where it suits sharing and balance, and many
// rows may go by other instructions than few.
void ChunkAttention(ThreadPool& pool, Isa isa, const ChunkAttentionArgs& args,
                    AttentionScratch& scratch);

// What a level computes with.
AttentionKernels AttentionKernelsOf(Isa isa);

// The same with kernels given by the caller: how tests run kernels whose instructions this machine
// may not have.
void ChunkAttention(ThreadPool& pool, const AttentionKernels& kernels,
                    const ChunkAttentionArgs& args, AttentionScratch& scratch);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_H_
