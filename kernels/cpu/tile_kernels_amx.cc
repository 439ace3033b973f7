#include "kernels/cpu/amx_instructions.h"
#include "kernels/cpu/bf16_instructions.h"
#include "kernels/cpu/quantized_vectors_vnni.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tile_weights_inl.h"

namespace refrain::kernels::cpu {

extern constinit const TileKernels kTileKernelsAmx =
    TileKernelsFor<VnniVectors, HardwareBf16, HardwareTiles>();

}  // namespace refrain::kernels::cpu
