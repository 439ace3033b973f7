#ifndef REFRAIN_KERNELS_CUDA_INSTRUCTIONS_H_
#define REFRAIN_KERNELS_CUDA_INSTRUCTIONS_H_

// The instructions beyond plain CUDA C that kernels use, one inline function each: PTX under nvcc,
// emulated for the host compiler. Names and contracts are the same in both.
//
// Numbers. F16 and BF16 are tags of 16-bit elements, stored as uint16_t.
//   HalfToFloat, FloatToHalf, Bf16ToFloat, FloatToBf16    rounding to nearest even
//   PackPair<T>(lo, hi)             two elements in 32 bits, lo in the low half
//   ExpTwo(x)                       2^x, about 2 units in the last place; 2^-inf = 0
//
// Matrix products of a warp, all 32 lanes: d [16, 8] += a [16, 16] b [16, 8], T is F16 or BF16,
// fragments as PTX's mma.m16n8k16 has them. With g = lane / 4, t = lane % 4:
//   a[0] = A[g][2t, 2t + 1]       a[1] = A[g + 8][2t, 2t + 1]
//   a[2] = A[g][2t + 8, 2t + 9]   a[3] = A[g + 8][2t + 8, 2t + 9]
//   b[0] = B[2t, 2t + 1][g]       b[1] = B[2t + 8, 2t + 9][g]
//   d[0], d[1] = D[g][2t, 2t + 1] d[2], d[3] = D[g + 8][2t, 2t + 1]
//   MmaM16N8K16<T>(d, a, b)
// Loads of 8 x 8 matrices of 16-bit elements by a warp: lane 8 i + r gives the address of row r (16
// bytes, aligned) of matrix i, and gets in r[i] elements (2t, 2t + 1) of row g; with Transposed
// elements (2t, 2t + 1) of column g.
//   LoadMatrixX4(r, shared), LoadMatrixX4Transposed, LoadMatrixX2, LoadMatrixX2Transposed
//   (X2: the addresses of lanes 0 to 15 count)
//
//   FetchLine(global)                    the 128 bytes there into the first-level cache
//
// Copies. A thread's copies become visible to itself when waited for, to others behind a barrier.
//   CopyAsync16(shared, global, valid)   16 bytes, aligned; zeros and no read when not valid
//   CopyAsyncCommit()                    closes a group
//   CopyAsyncWait<kPending>()            all but the last kPending groups have landed
//
// Barriers in shared memory (sm_90), uint64_t each, 8-byte aligned. A phase ends when all arrivals
// came and all expected bytes landed; the first phase has parity 0.
//   BarrierInit(barrier, arrivals)       one thread; then BarrierInitFence() and __syncthreads()
//   BarrierExpectBytes(barrier, bytes)   one arrival, and `bytes` more to land in this phase
//   BarrierArrive(barrier)
//   BarrierWait(barrier, parity)         until the phase of that parity has ended (parity 1 of a
//                                        new barrier counts as ended)
//   BulkCopyToShared(shared, global, bytes, barrier)   one thread; 16-byte aligned, bytes too
//   AsyncProxyFence()                    plain writes to shared memory before it are seen by bulk
//                                        copies and wgmma after it
//   NamedBarrierSync(id, threads), NamedBarrierArrive(id, threads)   id 1 to 15, threads a multiple
//                                        of 32 (id 0 is __syncthreads)
// Kernels that overlap (sm_90; nothing on older devices): one launched `early` begins when all
// blocks of the kernel before it have let it, or have ended.
//   LetDependentsStart()                 by any thread of a block
//   WaitForKernelBefore()                until all that the kernel before did is done and seen; at
//                                        once where the launch was not early
// Registers of a warpgroup (sm_90a), all its threads together, a multiple of 8 from 24 to 256. They
// move between warpgroups of one block: what the launch gave it is all there is.
//   RegistersDecrease<kCount>()          keeps so many for each thread
//   RegistersIncrease<kCount>()          waits until the others have given back enough
//
// sm_90 instructions compile to a trap for older devices, for one source is compiled for both.

namespace refrain::kernels::cuda {
struct F16 {};
struct BF16 {};
}  // namespace refrain::kernels::cuda

#ifdef __CUDACC__
#include "kernels/cuda/instructions_ptx.h"
#else
#include "kernels/cuda/emulated/instructions_emulated.h"
#endif

#endif  // REFRAIN_KERNELS_CUDA_INSTRUCTIONS_H_
