// AMX int8 tiles for many rows, AVX-512 VNNI for few.

#include "kernels/cpu/amx_instructions.h"
#include "kernels/cpu/quantized_kernels.h"
#include "kernels/cpu/quantized_tiles_inl.h"
#include "kernels/cpu/quantized_vectors_vnni.h"
#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {

extern constinit const QuantizedKernels kQuantizedKernelsAmx =
    KernelsForTiles<VnniVectors, HardwareTiles>(&kTileKernelsAmx);

}  // namespace refrain::kernels::cpu
