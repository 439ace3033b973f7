#ifndef REFRAIN_KERNELS_CUDA_MMA_ATTENTION_TILE_H_
#define REFRAIN_KERNELS_CUDA_MMA_ATTENTION_TILE_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_queries.h"
#include "kernels/cuda/attention_states.h"
#include "kernels/cuda/attention_tile_rows.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/mma_attention_blocks.h"
#include "kernels/cuda/mma_attention_layout.h"
#include "kernels/cuda/mma_attention_state.h"

// One tile of the mma.sync attention kernel (chunk_attention_mma_kernel.h).
namespace refrain::kernels::cuda {

// One tile's attention by one thread block, over K and V in T: F16, BF16, or E4M3, which is BF16
// from shared memory on. kRowWarps of the four warps share out queries, as many times as there are
// left share out keys.
template <class T, int kHeadDim, bool kReproducible, int kRowWarps>
class MmaTile {
  using Layout = MmaLayout<kHeadDim>;
  using Compute = std::conditional_t<std::is_same_v<T, E4M3>, BF16, T>;
  static constexpr int kKeyWarps = kMmaWarps / kRowWarps;
  static constexpr int kWarpKeys = kMmaBlockKeys / kKeyWarps;
  static constexpr int kScoreTiles = kWarpKeys / 8;
  using State = MmaState<Compute, kHeadDim, kScoreTiles>;
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr int kQuerySteps = Layout::kQueriesStay ? 1 : kSteps;

 public:
  __device__ __forceinline__ MmaTile(const ChunkAttentionLaunch& args, const TileLists& lists,
                                     const AttentionTile& tile, int32_t first_head,
                                     int32_t num_heads, int32_t kv_head, MmaShared* shared)
      : args_(args),
        tile_(tile),
        first_head_(first_head),
        num_heads_(num_heads),
        num_queries_(tile.num_rows * num_heads),
        shared_(shared),
        range_(RangeOfRows(shared->rows, tile.num_rows)),
        blocks_(args, lists, tile, range_, kv_head, shared) {}

  // The rows have been read and are visible to all threads. Leaves states and outputs written, no
  // thread of the block behind another in shared memory but for its stages.
  __device__ __forceinline__ void Attend() {
    // Blocks are counted from the tile's first key, so that with `reproducible` a key has the same
    // place in its block whatever else is in the tile.
    const int32_t begin = tile_.key_begin;
    const int32_t skipped =
        range_.begin > begin ? (range_.begin - begin) / kMmaBlockKeys * kMmaBlockKeys : 0;
    int32_t key = begin + skipped;
    if (key < range_.end) blocks_.Load(0, key);
    CopyAsyncCommit();
    LoadQueries();
    Clear();
    for (int stage = 0; key < range_.end; key += kMmaBlockKeys, stage ^= 1) {
      if (key + kMmaBlockKeys < range_.end) blocks_.Load(stage ^ 1, key + kMmaBlockKeys);
      CopyAsyncCommit();
      CopyAsyncWait<1>();
      __syncthreads();
      if constexpr (kReproducible) {
        if (key > begin && (key - begin) % kSegmentKeys == 0) EndSegment();
      }
      const bool idle =
          row_warp() * 16 >= num_queries_ || key + key_warp() * kWarpKeys >= range_.end;
      if (!idle) AttendBlock(stage, key);
      __syncthreads();
    }
    CopyAsyncWait<0>();
    if constexpr (kReproducible) {
      EndSegment();
      state_.TakeTotals(Layout::Totals(shared_));
    }
    WriteStates();
  }

 private:
  __device__ static __forceinline__ int lane() { return threadIdx.x % 32; }
  __device__ static __forceinline__ int row_warp() { return threadIdx.x / 32 % kRowWarps; }
  __device__ static __forceinline__ int key_warp() { return threadIdx.x / 32 / kRowWarps; }
  __device__ __forceinline__ void EndSegment() { state_.EndSegment(Layout::Totals(shared_)); }

  // q, rounded, into shared memory, and from there into registers unless it stays.
  __device__ __forceinline__ void LoadQueries() {
    uint16_t* const to = Layout::Queries(shared_);
    for (int i = threadIdx.x; i < 16 * kRowWarps * Layout::kUnits; i += kMmaThreads) {
      const int query = i / Layout::kUnits, unit = i % Layout::kUnits;
      uint4 packed = make_uint4(0, 0, 0, 0);
      if (query < num_queries_) {
        const int row = query / num_heads_, head = first_head_ + query % num_heads_;
        packed =
            PackQueries<Compute>(args_.q + shared_->rows[row].q_row * args_.q_stride +
                                 static_cast<int64_t>(head) * kHeadDim + unit * kKvUnitElements);
      }
      *reinterpret_cast<uint4*>(to + Layout::UnitAt(query, unit)) = packed;
    }
    __syncthreads();
    if constexpr (!Layout::kQueriesStay) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) LoadQueryStep(step, q_[step]);
      __syncthreads();  // the second stage may be loaded now
    }
  }

  // A fragment: matrices are (rows 0-7, dims 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
  __device__ __forceinline__ void LoadQueryStep(int step, uint32_t (&a)[4]) const {
    const int matrix = lane() / 8, r = lane() % 8;
    const int query = row_warp() * 16 + matrix % 2 * 8 + r;
    LoadMatrixX4(a, Layout::Queries(shared_) + Layout::UnitAt(query, 2 * step + matrix / 2));
  }

  __device__ __forceinline__ void Clear() {
    state_.Clear();
    if constexpr (kReproducible) State::ClearTotals(Layout::Totals(shared_));
  }

  __device__ __forceinline__ void AttendBlock(int stage, int32_t first) {
    float s[kScoreTiles][4];
    Score(stage, s);
    const int32_t warp_first = first + key_warp() * kWarpKeys;
    if (args_.window_tokens != 0 || first < range_.all_begin ||
        first + kMmaBlockKeys > range_.all_end) {
      Mask(stage, warp_first, s);
    }
    state_.Weigh(args_.scale * kLogTwoE, s);
    state_.AddValues(Layout::Values(shared_, stage), key_warp() * kWarpKeys, s);
  }

  // s = q k.
  __device__ __forceinline__ void Score(int stage, float (&s)[kScoreTiles][4]) {
#pragma unroll
    for (int tile = 0; tile < kScoreTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[tile][i] = 0.0f;
    }
    // Matrices: (keys 0-7, dims 0-7), (0-7, 8-15), (8-15, 0-7), (8-15, 8-15).
    const int matrix = lane() / 8, r = lane() % 8;
    const int row = key_warp() * kWarpKeys + matrix / 2 * 8 + r;
    const uint16_t* const keys = Layout::Keys(shared_, stage);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (Layout::kQueriesStay) LoadQueryStep(step, q_[0]);
      const uint32_t(&a)[4] = q_[Layout::kQueriesStay ? 0 : step];
#pragma unroll
      for (int pair = 0; pair < kScoreTiles / 2; ++pair) {
        uint32_t k[4];
        LoadMatrixX4(k, keys + Layout::UnitAt(row + 16 * pair, 2 * step + matrix % 2));
        MmaM16N8K16<Compute>(s[2 * pair], a, {k[0], k[1]});
        MmaM16N8K16<Compute>(s[2 * pair + 1], a, {k[2], k[3]});
      }
    }
  }

  // Minus infinity for keys that a row does not see.
  __device__ __forceinline__ void Mask(int stage, int32_t warp_first,
                                       float (&s)[kScoreTiles][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = row_warp() * 16 + half * 8 + lane() / 4;
      TileRow row = {};
      if (query < num_queries_) row = shared_->rows[query / num_heads_];
#pragma unroll
      for (int tile = 0; tile < kScoreTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int in_warp = 8 * tile + 2 * (lane() % 4) + i;
          const int32_t key = warp_first + in_warp;
          bool seen = key >= row.key_begin && key < row.key_end;
          if (args_.window_tokens != 0) {
            const int32_t at = shared_->key_positions[stage][key_warp() * kWarpKeys + in_warp];
            seen = seen && row.position - at < args_.window_tokens;
          }
          if (!seen) s[tile][2 * half + i] = -INFINITY;
        }
      }
    }
  }

  // Every warp's state to shared memory, from there merged and in whole rows to where they belong.
  __device__ __forceinline__ void WriteStates() {
    if constexpr (!kReproducible) state_.GatherSums();
    const int warp = threadIdx.x / 32;
    float* const own = Layout::Outputs(shared_) + warp * 16 * Layout::kOutputStride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 8 + lane() / 4;
#pragma unroll
      for (int tile = 0; tile < State::kOutputTiles; ++tile) {
        *reinterpret_cast<float2*>(own + row * Layout::kOutputStride + 8 * tile +
                                   2 * (lane() % 4)) = state_.o(half, tile);
      }
      if (lane() % 4 == 0) {
        shared_->mn[warp][row][0] = state_.m(half);
        shared_->mn[warp][row][1] = state_.n(half);
      }
    }
    __syncthreads();
    for (int query = warp; query < num_queries_; query += kMmaWarps) WriteState(query);
  }

  // A warp's.
  __device__ __forceinline__ void WriteState(int query) const {
    constexpr int kPerLane = kHeadDim / 32;
    float o[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) o[i] = 0.0f;
    float m = -INFINITY, n = 0.0f;
#pragma unroll
    for (int key_warp = 0; key_warp < kKeyWarps; ++key_warp) {
      const int warp = key_warp * kRowWarps + query / 16;
      const float* const from =
          Layout::Outputs(shared_) + (warp * 16 + query % 16) * Layout::kOutputStride + lane();
      float left, right;
      MergeStates(m, n, shared_->mn[warp][query % 16][0], shared_->mn[warp][query % 16][1], left,
                  right);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) o[i] = MergeElement(o[i], from[32 * i], left, right);
    }
    const TileRow row = shared_->rows[query / num_heads_];
    const int head = first_head_ + query % num_heads_;
    float* to;
    if (row.partial_row < 0) {
      const float scale = n == 0.0f ? 0.0f : 1.0f / n;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) o[i] *= scale;
      to = args_.out + row.q_row * args_.out_stride + static_cast<int64_t>(head) * kHeadDim;
    } else {
      const int64_t state = StateIndex(args_, row.partial_row, head);
      to = StateO(args_, state);
      if (lane() == 0) {
        StateMN(args_, state)[0] = m;
        StateMN(args_, state)[1] = n;
      }
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) to[32 * i + lane()] = o[i];
  }

  const ChunkAttentionLaunch& args_;
  const AttentionTile& tile_;
  const int32_t first_head_, num_heads_;
  const int num_queries_;
  MmaShared* const shared_;
  const KeyRange range_;
  MmaBlocks<T, kHeadDim> blocks_;

  uint32_t q_[kQuerySteps][4];
  State state_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_MMA_ATTENTION_TILE_H_
