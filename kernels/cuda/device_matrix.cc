#include "kernels/cuda/device_matrix.h"

#include <cstring>

namespace refrain::kernels::cuda {

void RepackRow(const DeviceMatrix& matrix, const std::byte* file_row, std::byte* to) {
  const DTypeTraits& traits = Traits(matrix.dtype);
  const BlockParts parts = PartsOf(matrix.dtype);
  std::memset(to, 0, matrix.row_bytes);
  if (parts.side_bytes == 0) {
    std::memcpy(to, file_row, *RowBytes(matrix.dtype, matrix.cols));
    return;
  }
  const int64_t blocks = matrix.cols / traits.block_elements;
  const size_t main_end = static_cast<size_t>(parts.main_offset) + parts.main_bytes;
  for (int64_t i = 0; i < blocks; ++i) {
    const std::byte* const block = file_row + i * traits.block_bytes;
    std::byte* const side = to + matrix.side_bytes + i * parts.side_bytes;
    std::memcpy(to + i * parts.main_bytes, block + parts.main_offset, parts.main_bytes);
    std::memcpy(side, block, parts.main_offset);
    std::memcpy(side + parts.main_offset, block + main_end, traits.block_bytes - main_end);
  }
}

}  // namespace refrain::kernels::cuda
