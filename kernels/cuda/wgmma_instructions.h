#ifndef REFRAIN_KERNELS_CUDA_WGMMA_INSTRUCTIONS_H_
#define REFRAIN_KERNELS_CUDA_WGMMA_INSTRUCTIONS_H_

// The instructions of wgmma.h in PTX; include that. They exist on sm_90a only: a kernel that uses
// them is launched nowhere else, and compiled for another architecture it traps.

namespace refrain::kernels::cuda {

template <class T>
inline constexpr char kPtxType[] = "";
template <>
inline constexpr char kPtxType<F16>[] = "f16";
template <>
inline constexpr char kPtxType<BF16>[] = "bf16";

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Operand lists: accumulators, and their names in the instruction.

#define REFRAIN_OUT_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define REFRAIN_OUT_8(i) REFRAIN_OUT_4(i), REFRAIN_OUT_4(i + 4)
#define REFRAIN_OUT_16(i) REFRAIN_OUT_8(i), REFRAIN_OUT_8(i + 8)
#define REFRAIN_OUT_32(i) REFRAIN_OUT_16(i), REFRAIN_OUT_16(i + 16)
#define REFRAIN_OUT_64(i) REFRAIN_OUT_32(i), REFRAIN_OUT_32(i + 32)
#define REFRAIN_OUT_48(i) REFRAIN_OUT_32(i), REFRAIN_OUT_16(i + 32)
#define REFRAIN_NAMES_4 "%0, %1, %2, %3"
#define REFRAIN_NAMES_8 REFRAIN_NAMES_4 ", %4, %5, %6, %7"
#define REFRAIN_NAMES_16 REFRAIN_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define REFRAIN_NAMES_32                                                          \
  REFRAIN_NAMES_16                                                                \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
  "%31"
#define REFRAIN_NAMES_48                                                          \
  REFRAIN_NAMES_32                                                                \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47"
#define REFRAIN_NAMES_64                                                          \
  REFRAIN_NAMES_48                                                                \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
  "%63"

// Both operands in shared memory; numbers are those of the operands behind the accumulators.
#define REFRAIN_WGMMA_SHARED(n, count, A, B, P, TA, TB, TYPE)                                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P                                           \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32.%" #TYPE ".%" #TYPE         \
               " {" REFRAIN_NAMES_##count "}, %" #A ", %" #B ", p, 1, 1, %" #TA ", %" #TB ";\n}" \
               : REFRAIN_OUT_##count(0)                                                          \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)),                              \
                 "n"(static_cast<int>(kTransposeA)), "n"(static_cast<int>(kTransposeB)),         \
                 "C"(kPtxType<T>))

// a in registers.
#define REFRAIN_WGMMA_REGISTERS(n, count, A0, A1, A2, A3, B, P, TB, TYPE)                      \
  asm volatile(                                                                                \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n     \
      "k16.f32.%" #TYPE ".%" #TYPE " {" REFRAIN_NAMES_##count                                  \
      "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, %" #TB ";\n}"            \
      : REFRAIN_OUT_##count(0)                                                                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), \
        "n"(static_cast<int>(kTransposeB)), "C"(kPtxType<T>))

// d (+)= a b with both operands in shared memory. kTranspose: the operand is M- or N-major.
template <class T, int kN, bool kTransposeA = false, bool kTransposeB = false>
__device__ __forceinline__ void WgmmaM64K16(float (&d)[kN / 2], uint64_t a, uint64_t b,
                                            bool accumulate) {
  if constexpr (kN == 8) {
    REFRAIN_WGMMA_SHARED(8, 4, 4, 5, 6, 7, 8, 9);
  } else if constexpr (kN == 16) {
    REFRAIN_WGMMA_SHARED(16, 8, 8, 9, 10, 11, 12, 13);
  } else if constexpr (kN == 32) {
    REFRAIN_WGMMA_SHARED(32, 16, 16, 17, 18, 19, 20, 21);
  } else if constexpr (kN == 64) {
    REFRAIN_WGMMA_SHARED(64, 32, 32, 33, 34, 35, 36, 37);
  } else if constexpr (kN == 96) {
    REFRAIN_WGMMA_SHARED(96, 48, 48, 49, 50, 51, 52, 53);
  } else if constexpr (kN == 128) {
    REFRAIN_WGMMA_SHARED(128, 64, 64, 65, 66, 67, 68, 69);
  } else {
    static_assert(kN == 0, "this N is not in the list");
  }
}

// The same with a in registers: as the A operand of mma.m16n8k16, warp w has rows 16 w and on.
template <class T, int kN, bool kTransposeB = false>
__device__ __forceinline__ void WgmmaM64K16(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b,
                                            bool accumulate) {
  if constexpr (kN == 8) {
    REFRAIN_WGMMA_REGISTERS(8, 4, 4, 5, 6, 7, 8, 9, 10, 11);
  } else if constexpr (kN == 16) {
    REFRAIN_WGMMA_REGISTERS(16, 8, 8, 9, 10, 11, 12, 13, 14, 15);
  } else if constexpr (kN == 32) {
    REFRAIN_WGMMA_REGISTERS(32, 16, 16, 17, 18, 19, 20, 21, 22, 23);
  } else if constexpr (kN == 64) {
    REFRAIN_WGMMA_REGISTERS(64, 32, 32, 33, 34, 35, 36, 37, 38, 39);
  } else if constexpr (kN == 96) {
    REFRAIN_WGMMA_REGISTERS(96, 48, 48, 49, 50, 51, 52, 53, 54, 55);
  } else if constexpr (kN == 128) {
    REFRAIN_WGMMA_REGISTERS(128, 64, 64, 65, 66, 67, 68, 69, 70, 71);
  } else {
    static_assert(kN == 0, "this N is not in the list");
  }
}

#undef REFRAIN_OUT_4
#undef REFRAIN_NAMES_4
#undef REFRAIN_OUT_8
#undef REFRAIN_NAMES_8
#undef REFRAIN_OUT_16
#undef REFRAIN_NAMES_16
#undef REFRAIN_OUT_32
#undef REFRAIN_NAMES_32
#undef REFRAIN_OUT_48
#undef REFRAIN_NAMES_48
#undef REFRAIN_OUT_64
#undef REFRAIN_NAMES_64
#undef REFRAIN_WGMMA_SHARED
#undef REFRAIN_WGMMA_REGISTERS

#else  // another architecture

__device__ __forceinline__ void WgmmaFence() { __trap(); }
__device__ __forceinline__ void WgmmaCommit() {}
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {}
template <class T, int kN, bool kTransposeA = false, bool kTransposeB = false>
__device__ __forceinline__ void WgmmaM64K16(float (&)[kN / 2], uint64_t, uint64_t, bool) {}
template <class T, int kN, bool kTransposeB = false>
__device__ __forceinline__ void WgmmaM64K16(float (&)[kN / 2], const uint32_t (&)[4], uint64_t,
                                            bool) {}

#endif

// Each register is here, in the place that it has, with its last value: reads and writes of it stay
// on their side.
template <int kCount>
__device__ __forceinline__ void HoldRegisters(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

template <int kCount>
__device__ __forceinline__ void HoldRegisters(uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

template <class R, int kRows, int kCount>
__device__ __forceinline__ void HoldRegisters(R (&registers)[kRows][kCount]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) HoldRegisters(registers[i]);
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_WGMMA_INSTRUCTIONS_H_
