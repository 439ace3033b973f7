#ifndef REFRAIN_KERNELS_CUDA_MMA_ATTENTION_LAYOUT_H_
#define REFRAIN_KERNELS_CUDA_MMA_ATTENTION_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_tile_rows.h"
#include "kernels/cuda/chunk_attention_mma.h"
#include "kernels/cuda/kv_packing.h"

// Shared memory of the mma.sync attention kernel (chunk_attention_mma_kernel.h).
namespace refrain::kernels::cuda {

inline constexpr int kMmaThreads = 128;
inline constexpr int kMmaWarps = kMmaThreads / 32;
inline constexpr int kMmaBlockKeys = 64;

struct MmaShared {
  TileRow rows[kMmaAttentionQueries];
  int32_t finished[kMmaAttentionQueries];
  int32_t key_positions[2][kMmaBlockKeys];
  float mn[kMmaWarps][16][2];
};

// Shared memory behind MmaShared, in bytes from its beginning.
template <int kHeadDim>
struct MmaLayout {
  static constexpr int kPanel = KvPanelElements(2, kHeadDim);
  static constexpr int kUnits = kHeadDim / kKvUnitElements;  // of 16 bytes in a row
  // q is read once into registers, or, where there are not enough of them, again for every block.
  static constexpr bool kQueriesStay = kHeadDim > 128;
  static constexpr int kBlockElements = kMmaBlockKeys * kHeadDim;  // of K or V in a stage
  static constexpr size_t kStages = (sizeof(MmaShared) + 1023) / 1024 * 1024;
  static constexpr size_t kStagesEnd = kStages + 2 * 2 * kBlockElements * sizeof(uint16_t);
  // Until the second stage is loaded it has room for q.
  static constexpr size_t kQueries =
      kQueriesStay ? kStagesEnd : kStages + 2 * kBlockElements * sizeof(uint16_t);
  static constexpr size_t kQueriesEnd =
      kQueriesStay ? kQueries + kMmaAttentionQueries * kHeadDim * sizeof(uint16_t) : kStagesEnd;
  // o of a finished tile lies where the stages were.
  static constexpr int kOutputStride = kHeadDim + 8;
  static_assert(kMmaWarps * 16 * kOutputStride * sizeof(float) <= kStagesEnd - kStages);
  // With `reproducible`: o of the segments before, an element of a thread behind that of another.
  static constexpr size_t kTotals = kQueriesEnd;
  static constexpr size_t kTotalsEnd = kTotals + kMmaThreads * kHeadDim / 2 * sizeof(float);

  // K and then V of a stage, q, o of a finished tile, o of the segments before.
  __device__ static __forceinline__ uint16_t* Keys(MmaShared* shared, int stage) {
    return reinterpret_cast<uint16_t*>(reinterpret_cast<unsigned char*>(shared) + kStages) +
           2 * stage * kBlockElements;
  }
  __device__ static __forceinline__ uint16_t* Values(MmaShared* shared, int stage) {
    return Keys(shared, stage) + kBlockElements;
  }
  __device__ static __forceinline__ uint16_t* Queries(MmaShared* shared) {
    return reinterpret_cast<uint16_t*>(reinterpret_cast<unsigned char*>(shared) + kQueries);
  }
  __device__ static __forceinline__ float* Outputs(MmaShared* shared) {
    return reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(shared) + kStages);
  }
  __device__ static __forceinline__ float* Totals(MmaShared* shared) {
    return reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(shared) + kTotals) +
           threadIdx.x;
  }

  // Index of a unit of a row of a [64][kHeadDim] block, packed as a chunk is.
  __device__ static __forceinline__ int UnitAt(int row, int unit) {
    constexpr int kPanelUnits = kPanel / kKvUnitElements;
    const int panel = unit / kPanelUnits;
    return (panel * kMmaBlockKeys + row) * kPanel +
           KvSwizzledUnit(kPanel, row, unit % kPanelUnits) * kKvUnitElements;
  }
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_MMA_ATTENTION_LAYOUT_H_
