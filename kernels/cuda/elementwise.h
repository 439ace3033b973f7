#ifndef REFRAIN_KERNELS_CUDA_ELEMENTWISE_H_
#define REFRAIN_KERNELS_CUDA_ELEMENTWISE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_matrix.h"
#include "kernels/ops.h"

namespace refrain::kernels::cuda {

class Stream;

// The operations that go over rows once. Every pointer is device memory; strides are in elements.
// Launches keep their failure in the stream; no rows is no launch. An output row depends on its own
// input row only, whatever the number of rows.

// A row of activations or of results.
struct DeviceRows {
  float* data = nullptr;
  int64_t stride = 0;
  friend bool operator==(const DeviceRows&, const DeviceRows&) = default;
};
inline DeviceRows RowsOf(const TensorView& view) {
  return {static_cast<float*>(view.data), view.stride};
}

struct EmbedLaunch {
  DeviceMatrix table;  // [vocab, hidden], rows [row_begin, row_begin + table.rows) of it
  int64_t row_begin = 0;
  const int32_t* ids = nullptr;      // [rows]; one outside of this table leaves its row as it is
  const int32_t* sampled = nullptr;  // [slots], what an IdOfSlot stands for; null: there is none
  int64_t rows = 0;
  DeviceRows out;  // [rows, hidden]
};
void LaunchEmbed(Stream& stream, const EmbedLaunch& args);

// The same in 16 bits, [rows, stride] f16 (beyond its range the largest) or bf16; null: not wanted.
struct RoundedRows {
  std::byte* data = nullptr;  // on a 16-byte border
  int64_t stride = 0;
  bool bf16 = false;
};

struct RmsNormLaunch {
  int64_t rows = 0, cols = 0;  // cols of one group
  float eps = 0;
  DeviceRows x;
  const float* weight = nullptr;         // [cols]
  const int32_t* row_indexes = nullptr;  // [rows]; null: row i of out is of row i of x
  DeviceRows out;
  RoundedRows rounded;  // out once more; only where cols is a multiple of 8, and of one group
  int groups = 1;       // of a row, at most 65,535
};
void LaunchRmsNorm(Stream& stream, const RmsNormLaunch& args);

struct RopeAppendLaunch {
  int layer = 0;
  int num_heads = 0;
  int64_t rows = 0;
  DeviceRows qkv;
  const int32_t* positions = nullptr;  // [rows]
  RopeTable table;
  const KvSlotRef* destinations = nullptr;  // [rows]
  KvPoolView kv;                            // packed as kv_packing.h says
};
void LaunchRopeAppend(Stream& stream, const RopeAppendLaunch& args);

// out = silu(gate) * up; out may be either.
struct SwiGluLaunch {
  int64_t rows = 0, cols = 0;
  DeviceRows gate, up, out;
  RoundedRows rounded;  // as RmsNormLaunch's
};
void LaunchSwiGlu(Stream& stream, const SwiGluLaunch& args);

// x += y.
struct AddLaunch {
  int64_t rows = 0, cols = 0;
  DeviceRows x, y;
};
void LaunchAdd(Stream& stream, const AddLaunch& args);

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ELEMENTWISE_H_
