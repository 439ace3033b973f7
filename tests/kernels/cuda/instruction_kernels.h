#ifndef REFRAIN_TESTS_KERNELS_CUDA_INSTRUCTION_KERNELS_H_
#define REFRAIN_TESTS_KERNELS_CUDA_INSTRUCTION_KERNELS_H_

#include <array>
#include <cstdint>

namespace refrain::kernels::cuda {

class Stream;

// One small kernel for each instruction of instructions.h and wgmma.h that the back end's kernels
// rest on, in the forms in which they use it. Pointers are device memory; a refusal is kept in the
// stream.

// Of every in[i]: f16, bf16, both of them as a pair with -in[i] above it, 2^in[i], f16 and bf16 as
// floats again; E4M3 (kv_elements.h), and as a float again.
struct ConversionLaunch {
  int count = 0;
  const float* in = nullptr;
  uint16_t *f16 = nullptr, *bf16 = nullptr;
  uint32_t *f16_pairs = nullptr, *bf16_pairs = nullptr;
  float *exp_two = nullptr, *from_f16 = nullptr, *from_bf16 = nullptr;
  uint8_t* e4m3 = nullptr;
  float* from_e4m3 = nullptr;
};
void LaunchConversions(Stream& stream, const ConversionLaunch& args);

// d [16, 8] += a [16, 16] b [16, 8] by mma.m16n8k16; a and b come by ldmatrix, b out of its rows.
void LaunchMma(Stream& stream, bool bf16, const uint16_t* a, const uint16_t* b, float* d);

// out [lane][8]: fragments of ldmatrix.x4, then of its transposed form, of four 8 x 8 matrices that
// hold their own places: element (row, col) of matrix i is 64 i + 8 row + col.
void LaunchLoadMatrices(Stream& stream, uint32_t* out);

// out [64, 4]: what 64 threads copied by cp.async out of in [64, 4], zeros for odd threads.
void LaunchCopyAsync(Stream& stream, const uint32_t* in, uint32_t* out);

// `rounds` times 64 floats come by bulk copies through a ring of two stages, as many copies as 16
// lanes issue at once, of 16 bytes each; out [32] sums them.
void LaunchBulkCopies(Stream& stream, const float* in, int rounds, float* out);

// granted [256]: 1 for every thread of two warpgroups that got the attention kernel's registers.
void LaunchShareRegisters(Stream& stream, int32_t* granted);

// out [256]: every thread's neighbour's number, through shared memory behind a named barrier of its
// own warpgroup, and then behind one that only the other warpgroup waits at.
void LaunchNamedBarriers(Stream& stream, int32_t* out);

// Each of `blocks` blocks leaves a number, the last one to come adds them: out [1]. counter [1] is
// zero before and after. As the generic and mma.sync kernels of attention merge partial states;
// Hopper's order, with one fence and reads behind the cache, is another.
void LaunchLastBlockSums(Stream& stream, int blocks, float* partials, int32_t* counter, float* out);

// An operand of wgmma in shared memory, 64 of k: descriptor of the first 16 of k, and how far on
// the other three begin.
struct OperandInShared {
  uint32_t begin = 0, leading = 0, stride = 0;
  uint32_t swizzle = 0;  // of wgmma.h
  std::array<uint32_t, 4> steps = {};
};

// out [64, n] = a b by wgmma, with shared memory filled from `image`; out of registers a is rows of
// 64 at the image's beginning. n and what is turned must be one of kProducts.
struct ProductLaunch {
  int n = 0;
  bool bf16 = false, turned_a = false, turned_b = false, a_in_registers = false;
  OperandInShared a, b;
  const uint16_t* image = nullptr;
  int image_elements = 0;
  float* out = nullptr;
};
// False: no kernel has this form.
bool LaunchProduct(Stream& stream, const ProductLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_TESTS_KERNELS_CUDA_INSTRUCTION_KERNELS_H_
