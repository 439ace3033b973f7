#ifndef REFRAIN_KERNELS_CPU_ATTENTION_E4M3_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_E4M3_H_

#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/prefetch.h"

// E4M3 to bf16 over a level's vector type S. Include only from files that are compiled for one
// level.
namespace refrain::kernels::cpu {

template <class S>
struct AttentionE4m3 {
  static void Widen(const E4m3Rows& a) {
    const int whole = a.count / L * L;
    for (int row = 0; row < a.rows; ++row) {
      const uint8_t* const even = a.even + row * a.stride;
      const uint8_t* const odd = a.odd + row * a.stride;
      uint32_t* const out = a.out + row * a.out_stride;
      for (int64_t i = 0; i < a.stride; i += 64) {
        PrefetchToSecondLevel(a.ahead + row * a.stride + i);
      }
      for (int i = 0; i < whole; i += L) S::StoreE4m3Pairs(out + i, even + i, odd + i);
      if (whole < a.count) WidenRest(even + whole, odd + whole, a.count - whole, out + whole);
    }
  }

 private:
  static constexpr int L = S::kLanes;

  // Neither reads nor writes behind the row: values may end where the pool does.
  static void WidenRest(const uint8_t* even, const uint8_t* odd, int count, uint32_t* out) {
    uint8_t evens[L] = {}, odds[L] = {};
    uint32_t pairs[L];
    for (int i = 0; i < count; ++i) {
      evens[i] = even[i];
      odds[i] = odd[i];
    }
    S::StoreE4m3Pairs(pairs, evens, odds);
    for (int i = 0; i < count; ++i) out[i] = pairs[i];
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_E4M3_H_
