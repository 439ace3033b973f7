#ifndef REFRAIN_KERNELS_CPU_E4M3_SEGMENT_H_
#define REFRAIN_KERNELS_CPU_E4M3_SEGMENT_H_

#include "kernels/cpu/aligned_floats.h"
#include "kernels/cpu/attention_kernels.h"

namespace refrain::kernels::cpu {

// Keys and values of a segment in bf16 pairs, widened from E4M3 (DType::kF8E4M3, which lies as
// KvPacking::kTransposedK says). Every E4M3 number is one of bf16, so attention over the copies is
// bit for bit that over the same numbers in bf16, and no level's kernels need to know a fourth
// element type. They are written once for all rows of a task and read from the second-level cache;
// from memory comes half of what bf16 would take.
//
// One per thread; what Widen gave is good until the next call.
class E4m3Segment {
 public:
  // Room for segments of heads of `head_dim` elements.
  void Reserve(int head_dim);

  // Makes `a`, whose pieces are in E4M3, the same segment over the copies, without gaps and with
  // token 0 at its segment_begin. `widen` as in AttentionKernels.
  void Widen(void (*widen)(const E4m3Rows& rows), SegmentArgs& a);

 private:
  AlignedFloats keys_;    // [head_dim / 2, kScoreStride] pairs
  AlignedFloats values_;  // [kMaxSegmentKeys / 2, head_dim] pairs
  KeyPiece piece_ = {};
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_E4M3_SEGMENT_H_
