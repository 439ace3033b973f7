#ifndef REFRAIN_TESTS_KERNELS_CPU_QUANTIZED_EMULATED_KERNELS_H_
#define REFRAIN_TESTS_KERNELS_CPU_QUANTIZED_EMULATED_KERNELS_H_

#include "kernels/cpu/quantized_kernels.h"
#include "tests/kernels/cpu/emulated_tile_log.h"

namespace refrain::kernels::cpu {

// The quantised kernels of kAmx compiled from the same source as the real ones over the tiles of
// emulated_instructions.h. They need AVX-512 VNNI to run.
const QuantizedKernels& EmulatedAmxQuantizedKernels();

// What the emulated tiles of this thread have seen in these kernels since the last call.
EmulatedTileLog TakeQuantizedTileLog();

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_TESTS_KERNELS_CPU_QUANTIZED_EMULATED_KERNELS_H_
