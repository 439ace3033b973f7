#ifndef REFRAIN_KERNELS_CUDA_WGMMA_H_
#define REFRAIN_KERNELS_CUDA_WGMMA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/instructions.h"

// Warpgroup matrix products of Hopper (sm_90a): d[64][N] (+)= a[64][16] b[16][N], a and b in f16 or
// bf16, d in f32. All four warps of a warpgroup (128 threads that begin at a multiple of 128) issue
// the same products with the same descriptors. The products are asynchronous:
//
//   HoldRegisters(d);                            // d, and a where it is in registers
//   WgmmaFence();                                // registers written before are seen
//   WgmmaM64K16<F16, 32>(d, a0, b0, false);      // any number, into d
//   WgmmaM64K16<F16, 32>(d, a1, b1, true);
//   WgmmaCommit();
//   WgmmaWait<0>();                              // until at most 0 groups are under way
//   HoldRegisters(d);                            // d is read, a written only behind this
//
// Products read and write registers behind the compiler's back: HoldRegisters keeps it from putting
// a write of them behind the fence, or a copy of them or other values into them before the wait
// (PTX ISA, wgmma.fence and wgmma.wait_group; CUTLASS' warpgroup_fence_operand does the same).
//
// Until then d, register operands and the shared memory of a and b belong to the products. Shared
// memory written by ordinary stores is seen by products behind AsyncProxyFence in the writing
// thread and a barrier after it; memory filled by BulkCopyToShared needs only its barrier's wait.
//
// Under g++ the same functions run on the emulated device (emulated/wgmma_emulated.h): operands are
// read through the descriptor at the time of WgmmaWait, so that memory handed back too early and
// results read too early are seen, and so are registers that were not held.
//
// What this file rests on (written before a GPU could run it; an H200 has since):
//  - PTX ISA 9.7.15 (wgmma): which thread holds which element of d and of a in registers (the
//  layout
//    of mma.m16n8k16 per warp, warp w of the warpgroup having rows 16 w to 16 w + 15); bits of the
//    matrix descriptor; imm-trans 1 = M- or N-major; what must be fenced.
//  - PTX ISA 9.7.15.5.1.2 and the canonical layouts in CUTLASS (mma_traits_sm90_gmma.hpp, read, not
//    copied), which agree, for what the two byte offsets mean (units of 16 bytes = 8 elements):
//      K-major, no swizzle:  8 rows 16 bytes apart; leading = to the other 8 of k; stride = to the
//                            next 8 rows.
//      K-major, 64B / 128B:  8 rows 64 / 128 bytes apart, k contiguous; stride = to the next 8
//      rows;
//                            leading is not read.
//      MN-major, no swizzle: 8 k 16 bytes apart; leading = to the other 8 of k; stride = to the
//      next
//                            8 rows (or columns).
//      MN-major, 64B / 128B: 32 / 64 rows contiguous, k 64 / 128 bytes apart; stride = to the other
//                            8 of k; leading = to the next 32 / 64 rows.
//  - A swizzle exchanges address bits: 128B: bits 4-6 ^= bits 7-9; 64B: bits 4-5 ^= bits 7-8. They
//    are bits of the shared memory address, hence the pattern must begin at a multiple of 1,024 /
//    512 bytes and a k step inside a pattern row is a step of the start address (32 bytes for 16
//    elements), base offset 0, as CUTLASS' descriptor iterators do.

namespace refrain::kernels::cuda {

#ifndef __CUDACC__
// An address in shared memory as instructions have it (instructions_ptx.h has the real one).
inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(static_cast<const std::byte*>(shared) -
                               emulated::CurrentThread().block->shared);
}
#endif

// The number is the descriptor's layout type, bits 62-63.
enum class Swizzle : uint32_t { kNone = 0, k128Bytes = 1, k64Bytes = 2 };

// Bytes that a swizzle pattern's beginning must be a multiple of.
inline constexpr uint32_t kSwizzleAlignment = 1024;

// A matrix operand in shared memory, see above for the offsets (multiples of 16, below 2^18).
__device__ __forceinline__ uint64_t SharedDescriptor(const void* shared, uint32_t leading_bytes,
                                                     uint32_t stride_bytes, Swizzle swizzle) {
  const auto encode = [](uint32_t bytes) { return static_cast<uint64_t>((bytes & 0x3FFFF) >> 4); };
  return encode(SharedAddress(shared)) | encode(leading_bytes) << 16 | encode(stride_bytes) << 32 |
         static_cast<uint64_t>(swizzle) << 62;
}

// The same operand `bytes` further on in shared memory (a multiple of 16; the address must not
// leave the 256 KiB that a descriptor reaches).
__device__ __forceinline__ uint64_t Advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace refrain::kernels::cuda

#ifdef __CUDACC__
#include "kernels/cuda/wgmma_instructions.h"
#else
#include "kernels/cuda/emulated/wgmma_emulated.h"
#endif

#endif  // REFRAIN_KERNELS_CUDA_WGMMA_H_
