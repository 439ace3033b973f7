#ifndef REFRAIN_KERNELS_SOFTMAX_STATE_H_
#define REFRAIN_KERNELS_SOFTMAX_STATE_H_

#include <cmath>
#include <limits>

namespace refrain::kernels {

// Attention over a set of keys, unfinished (ChunkAttention, equations 1 and 2, to base 2). With
// scores s_j in units of ln 2, so that a weight e^(q k scale) is 2^s, and values v_j over the set,
//   m = max_j s_j,  n = sum_j 2^(s_j - m),  o = sum_j 2^(s_j - m) v_j   // o: [head_dim]
// and the attention output is o / n, whatever the base, and whatever m is: a kernel may take
// another score for it while n stays far from what a float holds (attention_amx_weights.h). A power
// of two takes two thirds of the instructions of e^x (Exp2 in simd_math.h), and 2^(s - m) is exact
// where s - m is whole.
//
// States of disjoint key sets merge to the state of their union; Merge is associative and
// commutative up to rounding. The empty set is {m = -inf, n = 0, o = 0}, the identity of Merge on
// either side, without rounding. A finished state with n == 0 (a row that attends to nothing)
// yields zeros, never NaN. A score that is no number makes n none, and Merge keeps it so.
struct SoftmaxState {
  float m = -std::numeric_limits<float>::infinity();
  float n = 0.0f;
};

// Factors by which the two sides' o (and n) are scaled in a merge.
struct MergeScales {
  float left;
  float right;
};

// Merges `right` into `left` and returns the factors for their o vectors:
//   o = left.o * scales.left + right.o * scales.right.
//
// The oracle: kernels have a Merge of their own, with the exponential of their instructions
// (AttentionKernels::merge, MergeStates in cuda/attention_states.h), and softmax_state_test holds
// it to this one.
inline MergeScales Merge(SoftmaxState& left, const SoftmaxState& right) {
  if (right.n == 0.0f) return {1.0f, 0.0f};
  if (left.n == 0.0f) {
    left = right;
    return {0.0f, 1.0f};
  }
  const float m = left.m > right.m ? left.m : right.m;
  const MergeScales scales{std::exp2(left.m - m), std::exp2(right.m - m)};
  left.n = left.n * scales.left + right.n * scales.right;
  left.m = m;
  return scales;
}

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_SOFTMAX_STATE_H_
