#ifndef REFRAIN_KERNELS_CUDA_MMA_ATTENTION_BLOCKS_H_
#define REFRAIN_KERNELS_CUDA_MMA_ATTENTION_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_tile_rows.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/kv_elements.h"
#include "kernels/cuda/kv_packing.h"
#include "kernels/cuda/mma_attention_layout.h"

// Blocks of 64 keys for the mma.sync attention kernel (chunk_attention_mma_kernel.h).
namespace refrain::kernels::cuda {

// Brings a tile's keys into the stages, block by block in ascending order: F16 and BF16 as they
// are, by asynchronous copies, E4M3 as BF16, through registers. A thread's own.
template <class T, int kHeadDim>
class MmaBlocks {
  using Layout = MmaLayout<kHeadDim>;

 public:
  __device__ __forceinline__ MmaBlocks(const ChunkAttentionLaunch& args, const TileLists& lists,
                                       const AttentionTile& tile, const KeyRange& range,
                                       int32_t kv_head, MmaShared* shared)
      : args_(args),
        begin_(range.begin),
        end_(range.end),
        shared_(shared),
        cursor_(lists, tile),
        head_(args.kv.base + args.layer * args.kv.layer_bytes + kv_head * args.kv.head_bytes) {}

  // Keys [first, first + 64) into a stage; zeros for those that no row sees, which may hold
  // anything.
  __device__ __forceinline__ void Load(int stage, int32_t first) {
    uint16_t* const keys = Layout::Keys(shared_, stage);
    uint16_t* const values = Layout::Values(shared_, stage);
    // Wide heads leave few registers for addresses.
    [[maybe_unused]] constexpr int kUnroll = kHeadDim > 128 ? 1 : 4;
#pragma unroll kUnroll
    for (int i = threadIdx.x; i < kMmaBlockKeys * Layout::kUnits; i += kMmaThreads) {
      const int row = i / Layout::kUnits, unit = i % Layout::kUnits;
      const int32_t key = first + row;
      const bool seen = key >= begin_ && key < end_;
      const std::byte* from = head_;
      if (seen) {
        cursor_.Seek(key);
        const int token = cursor_.Token(key);
        const int at = UnitIn(token, unit);
        if (unit == 0 && args_.window_tokens != 0) {
          shared_->key_positions[stage][row] =
              args_.kv
                  .positions[static_cast<int64_t>(cursor_.chunk()) * args_.kv.chunk_tokens + token];
        }
        from += cursor_.chunk() * args_.kv.chunk_bytes + at * kKvElementBytes<T>;
      }
      const int to = Layout::UnitAt(row, unit);
      if constexpr (kWidens) {
        Widen(keys + to, from, seen);
        Widen(values + to, from + args_.kv.v_offset_bytes, seen);
      } else {
        CopyAsync16(keys + to, from, seen);
        CopyAsync16(values + to, from + args_.kv.v_offset_bytes, seen);
      }
    }
  }

 private:
  static constexpr bool kWidens = std::is_same_v<T, E4M3>;

  // Where a unit of a token begins in a head of its chunk, in elements (kv_packing.h).
  __device__ __forceinline__ int UnitIn(int token, int unit) const {
    if constexpr (kWidens) return token * kHeadDim + unit * kKvUnitElements;
    constexpr int kPanelUnits = Layout::kPanel / kKvUnitElements;
    return (unit / kPanelUnits * args_.kv.chunk_tokens + token) * Layout::kPanel +
           KvSwizzledUnit(Layout::kPanel, token, unit % kPanelUnits) * kKvUnitElements;
  }

  __device__ static __forceinline__ void Widen(uint16_t* to, const std::byte* from, bool seen) {
    uint4 unit = make_uint4(0, 0, 0, 0);
    if (seen) unit = E4m3UnitToBf16(*reinterpret_cast<const uint2*>(from));
    *reinterpret_cast<uint4*>(to) = unit;
  }

  const ChunkAttentionLaunch& args_;
  const int32_t begin_, end_;
  MmaShared* const shared_;
  KeyCursor cursor_;
  const std::byte* const head_;  // of chunk 0
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_MMA_ATTENTION_BLOCKS_H_
