#ifndef REFRAIN_KERNELS_CUDA_DEVICE_LANGUAGE_H_
#define REFRAIN_KERNELS_CUDA_DEVICE_LANGUAGE_H_

// What a .cu file is written in. Every kernel is compiled twice: by nvcc for a GPU, and by the host
// compiler for the emulated device (emulated/), on which tests run the same kernels, the same
// launches and the same back end with no GPU and no toolkit.
//
// The rules that make that possible:
//   - shared memory is dynamic: SharedMemory<Layout>(), a struct or an array; no __shared__
//   - kernels are launched by Launch(stream, {grid, block, shared_bytes, "name"}, kernel, args...);
//     args are values, copied; no <<< >>>
//   - beyond plain CUDA C (threadIdx, __syncthreads, __shfl_*_sync, __ballot_sync, atomics) there
//     is only what instructions.h and wgmma.h name
//   - headers beside a .cu file declare plain functions that take a Stream&, without CUDA types
//   - no block waits for another block of its grid: the emulated device runs them one by one
// The emulated device refuses a __syncthreads that not all threads of a block reach at the same
// place, a shuffle that not all lanes of its mask reach, and reports what would wait for ever.

#ifdef __CUDACC__
#include "kernels/cuda/device_language_nvcc.h"
#else
#include "kernels/cuda/emulated/device_language_emulated.h"
#endif

#endif  // REFRAIN_KERNELS_CUDA_DEVICE_LANGUAGE_H_
