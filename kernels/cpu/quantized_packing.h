#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_PACKING_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_PACKING_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"
#include "kernels/dtype.h"

namespace refrain::kernels::cpu {

// What a stored type is to the packed layout.
struct QuantizedFormat {
  int bits = 0;
  ScaleKind scale_kind = ScaleKind::kScale;
  int zero_point = 0;  // of the packed quants; 0 where the type has a minimum
};

QuantizedFormat FormatOf(DType dtype);  // a quantised one

// Bytes of a tile and of its scales for `blocks` blocks of 32 along k.
int64_t ScaleBytes(const QuantizedFormat& format, int64_t blocks);
int64_t TileBytes(const QuantizedFormat& format, int64_t blocks);

// Writes the stored row at `row` (of `blocks` blocks of 32) as lane `lane` of the tile at `tile`,
// which is zero there.
void PackRow(DType dtype, const std::byte* row, int64_t blocks, int lane, uint8_t* tile);

// The inverse, as floats: out[0, 32 * blocks). Equal bit for bit to dequantising the stored row.
void UnpackRow(DType dtype, const uint8_t* tile, int64_t blocks, int lane, float* out);

// Of a packed row w: its length as a vector, and `terms`, which bounds what a product with w adds
// up (ProductBounds).
struct RowNorms {
  double length = 0;
  double terms = 0;
};
RowNorms NormsOfRow(DType dtype, const uint8_t* tile, int64_t blocks, int lane);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_PACKING_H_
