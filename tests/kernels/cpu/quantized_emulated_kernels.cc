#include "tests/kernels/cpu/quantized_emulated_kernels.h"

#include "kernels/cpu/quantized_tiles_inl.h"
#include "kernels/cpu/quantized_vectors_vnni.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tile_weights_inl.h"
#include "tests/kernels/cpu/emulated_instructions.h"

namespace refrain::kernels::cpu {
namespace {

constinit const TileKernels kEmulatedTiles =
    TileKernelsFor<VnniVectors, EmulatedBf16, EmulatedTiles>();
constinit const QuantizedKernels kEmulated =
    KernelsForTiles<VnniVectors, EmulatedTiles>(&kEmulatedTiles);

}  // namespace

const QuantizedKernels& EmulatedAmxQuantizedKernels() { return kEmulated; }

EmulatedTileLog TakeQuantizedTileLog() { return EmulatedTiles::TakeLog(); }

}  // namespace refrain::kernels::cpu
