#ifndef REFRAIN_KERNELS_CUDA_EMULATED_WGMMA_EMULATED_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_WGMMA_EMULATED_H_

// wgmma.h on the emulated device; included by that header only.

#include <cstdint>
#include <memory>

#include "kernels/cuda/emulated/emulated_thread.h"
#include "kernels/cuda/emulated/instructions_emulated.h"
#include "kernels/cuda/emulated/wgmma_products.h"

namespace refrain::kernels::cuda {
namespace emulated {

template <class T>
void IssueWgmma(WgmmaOperand& operand) {
  operand.to_float = ElementToFloat<T>;
  MeetWarpgroup("wgmma", &operand,
                [](void* const* operands, uint32_t) { Products().Issue(operands); });
}

}  // namespace emulated

// Whether registers were held is the same for all threads: the first one's count.
inline void WgmmaFence() {
  if (emulated::CurrentThread().linear % emulated::WgmmaProducts::kThreads == 0) {
    emulated::Products().Fence();
  }
}

inline void WgmmaCommit() {
  emulated::MeetWarpgroup("wgmma.commit_group", nullptr,
                          [](void* const*, uint32_t) { emulated::Products().Commit(); });
}

template <int kPending>
void WgmmaWait() {
  emulated::MeetWarpgroup("wgmma.wait_group", nullptr,
                          [](void* const*, uint32_t) { emulated::Products().Wait(kPending); });
}

template <class T, int kN, bool kTransposeA = false, bool kTransposeB = false>
void WgmmaM64K16(float (&d)[kN / 2], uint64_t a, uint64_t b, bool accumulate) {
  emulated::WgmmaOperand operand;
  operand.n = kN;
  operand.accumulate = accumulate;
  operand.transpose_a = kTransposeA;
  operand.transpose_b = kTransposeB;
  operand.a_descriptor = a;
  operand.b_descriptor = b;
  operand.d = d;
  emulated::IssueWgmma<T>(operand);
}

template <class T, int kN, bool kTransposeB = false>
void WgmmaM64K16(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  emulated::WgmmaOperand operand;
  operand.n = kN;
  operand.accumulate = accumulate;
  operand.transpose_b = kTransposeB;
  operand.b_descriptor = b;
  operand.a = a;
  operand.d = d;
  emulated::IssueWgmma<T>(operand);
}

template <class R, int kCount>
void HoldRegisters(R (&registers)[kCount]) {
  if (emulated::CurrentThread().linear % emulated::WgmmaProducts::kThreads == 0) {
    emulated::Products().Hold(registers, sizeof(registers));
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_WGMMA_EMULATED_H_
