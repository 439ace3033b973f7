#ifndef REFRAIN_KERNELS_CUDA_INSTRUCTIONS_PTX_H_
#define REFRAIN_KERNELS_CUDA_INSTRUCTIONS_PTX_H_

// instructions.h as PTX; included by that header only. References are to the PTX ISA's names.

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace refrain::kernels::cuda {

// --- Numbers ---

__device__ __forceinline__ float HalfToFloat(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ uint16_t FloatToHalf(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

__device__ __forceinline__ float Bf16ToFloat(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

__device__ __forceinline__ uint16_t FloatToBf16(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

template <class T>
__device__ __forceinline__ uint32_t PackPair(float lo, float hi) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, F16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  }
  return pair;
}

__device__ __forceinline__ float ExpTwo(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

// --- Matrix products of a warp ---

template <class T>
__device__ __forceinline__ void MmaM16N8K16(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, F16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ void LoadMatrixX4(uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(shared))
               : "memory");
}

__device__ __forceinline__ void LoadMatrixX4Transposed(uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(shared))
               : "memory");
}

__device__ __forceinline__ void LoadMatrixX2(uint32_t (&r)[2], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(shared))
               : "memory");
}

__device__ __forceinline__ void LoadMatrixX2Transposed(uint32_t (&r)[2], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(shared))
               : "memory");
}

// --- Copies of a thread ---

__device__ __forceinline__ void FetchLine(const void* global) {
  // A load whose value nobody uses is left out by ptxas, volatile or not.
  asm volatile("prefetch.global.L1 [%0];" : : "l"(global) : "memory");
}

__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(SharedAddress(shared)), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void CopyAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// --- Barriers in shared memory, copies that complete on them ---

__device__ __forceinline__ void BarrierInit(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}

__device__ __forceinline__ void NeedsSm90() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  __trap();
#endif
}

__device__ __forceinline__ void BarrierInitFence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void BarrierExpectBytes(uint64_t* barrier, uint32_t bytes) {
  NeedsSm90();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(SharedAddress(barrier)), "r"(bytes)
               : "memory");
#endif
}

__device__ __forceinline__ void BarrierArrive(uint64_t* barrier) {
  NeedsSm90();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :
               : "r"(SharedAddress(barrier))
               : "memory");
#endif
}

__device__ __forceinline__ void BarrierWait(uint64_t* barrier, uint32_t parity) {
  NeedsSm90();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t ended = 0;
  while (ended == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(ended)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  }
#endif
}

__device__ __forceinline__ void BulkCopyToShared(void* shared, const void* global, uint32_t bytes,
                                                 uint64_t* barrier) {
  NeedsSm90();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // A block that is not launched in a cluster is a cluster of one, so its shared::cta addresses are
  // shared::cluster addresses too.
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(SharedAddress(shared)), "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
#endif
}

__device__ __forceinline__ void AsyncProxyFence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ __forceinline__ void LetDependentsStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void WaitForKernelBefore() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void NamedBarrierSync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void NamedBarrierArrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int kCount>
__device__ __forceinline__ void RegistersIncrease() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

template <int kCount>
__device__ __forceinline__ void RegistersDecrease() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_INSTRUCTIONS_PTX_H_
