#ifndef REFRAIN_TESTS_KERNELS_CPU_DENSE_EMULATED_KERNELS_H_
#define REFRAIN_TESTS_KERNELS_CPU_DENSE_EMULATED_KERNELS_H_

#include <cstdint>

#include "kernels/cpu/dense_kernels.h"
#include "tests/kernels/cpu/emulated_tile_log.h"

namespace refrain::kernels::cpu {

// The dense kernels of kAvx512Bf16 and kAmx compiled from the same source as the real ones, with
// vdpbf16ps and the tile instructions replaced by emulations written from Intel's manual (rounding
// to nearest even, denormals as zero, order of sums, shapes of tiles). They test the kernels' logic
// on machines without these instructions; they do not show that real hardware agrees.
// Both need AVX-512 F to run.
DenseKernels EmulatedBf16DenseKernels();
DenseKernels EmulatedAmxDenseKernels();

// What the emulated tiles of this thread have seen since the last call.
EmulatedTileLog TakeEmulatedTileLog();

// The emulated instructions alone, for tests of the emulation.
float EmulatedDotBf16(float sum, uint16_t x0, uint16_t x1, uint16_t w0, uint16_t w1);

// Configures tiles of the given rows and row bytes and multiplies tile 0 += tile 1 * tile 2.
void EmulatedTileDot(const uint8_t rows[3], const uint16_t row_bytes[3], const void* a,
                     const void* b, float* sums);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_TESTS_KERNELS_CPU_DENSE_EMULATED_KERNELS_H_
