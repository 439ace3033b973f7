#ifndef REFRAIN_KERNELS_CPU_ATTENTION_LOOPS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_LOOPS_H_

#include <cstdint>

#include "kernels/cpu/attention_e4m3.h"
#include "kernels/cpu/attention_in_place.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_lines_ahead.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/attention_widened.h"
#include "kernels/cpu/simd_math.h"

// AttentionKernels over a level's vector type. Include only from files that are compiled for one
// level.
//
// A segment is worked in three passes: all scores, softmax, all values. Few rows (decode) read K
// and V where they lie and convert in registers: memory is the limit. More rows (prefill, shared
// chunks) first widen tiles of 64 keys into f32 scratch, which closes the gaps of part-full chunks
// and costs little beside the products. Both run the same register tiles, so a row comes out the
// same.
namespace refrain::kernels::cpu {

template <class S>
class AttentionLoops {
 public:
  static void Segment(const SegmentArgs& a) {
    for (int r = 0; r < a.num_rows; ++r) {
      for (int64_t i = 0; i < a.o_stride; i += L) S::Store(a.o + r * a.o_stride + i, S::Zero());
    }
    // Direct reading works on whole vectors of output elements.
    if (a.num_rows <= S::kTileRows && a.head_dim % L == 0) {
      LinesAhead ahead(a);
      AttentionInPlace<S>::Scores(a, ahead);
      AttentionSoftmax<S>::Run(a);
      AttentionInPlace<S>::Values(a, ahead);
      ahead.AskForRest();
    } else {
      AttentionWidened<S>::Scores(a);
      AttentionSoftmax<S>::Run(a);
      AttentionWidened<S>::Values(a);
    }
  }

  static void Merge(SoftmaxState& left, float* left_o, const SoftmaxState& right,
                    const float* right_o, int head_dim) {
    if (right.n == 0.0f) return;
    if (left.n == 0.0f) {
      left = right;
      ForVectors(head_dim, [&](int i) { S::Store(left_o + i, S::Load(right_o + i)); });
      return;
    }
    const float m = left.m > right.m ? left.m : right.m;
    const F left_scale = Exp2<S>(S::Set1(left.m - m));
    const F right_scale = Exp2<S>(S::Set1(right.m - m));
    float n[L];
    S::Store(n, S::Fma(S::Set1(left.n), left_scale, S::Mul(S::Set1(right.n), right_scale)));
    left = {m, n[0]};
    ForVectors(head_dim, [&](int i) {
      const F scaled = S::Mul(S::Load(right_o + i), right_scale);
      S::Store(left_o + i, S::Fma(S::Load(left_o + i), left_scale, scaled));
    });
  }

  static void Finish(const SoftmaxState& state, const float* o, float* out, int head_dim) {
    const F factor = S::Set1(state.n == 0.0f ? 0.0f : 1.0f / state.n);
    const bool empty = state.n == 0.0f;
    int i = 0;
    for (; i + L <= head_dim; i += L) {
      S::Store(out + i, empty ? S::Zero() : S::Mul(S::Load(o + i), factor));
    }
    if (i < head_dim) {
      S::StoreN(out + i, empty ? S::Zero() : S::Mul(S::Load(o + i), factor), head_dim - i);
    }
  }

  static void Scale(const float* x, float scale, float* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = x[i] * scale;
  }

  static constexpr AttentionKernels kTable = {.uses_pairs = false,
                                              .shares_by_keys = false,
                                              .segment = Segment,
                                              .merge = Merge,
                                              .finish = Finish,
                                              .scale = Scale,
                                              .widen_e4m3 = AttentionE4m3<S>::Widen};

 private:
  using F = typename S::F;
  static constexpr int L = S::kLanes;

  template <class Fn>
  static void ForVectors(int n, const Fn& fn) {  // rows are padded to whole vectors
    for (int i = 0; i < n; i += L) fn(i);
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_LOOPS_H_
