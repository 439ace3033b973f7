#ifndef REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_MMA_KERNEL_H_
#define REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_MMA_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_device.h"
#include "kernels/cuda/chunk_attention_mma.h"
#include "kernels/cuda/kv_packing.h"

// The mma.sync kernel as a template; included by chunk_attention_mma_*.cu only.
//
// A thread block of four warps works on one tile at a time. K and V come in blocks of 64 keys into
// one of two stages by cp.async, gathered key by key: part-full chunks, chunks of any size and
// segments that begin inside a chunk make no difference behind that. S = Q K^T with queries (rows x
// heads of the group) as the rows of A, online softmax in registers, O += P V with the weights
// taken from the accumulators as they are (the layouts of an accumulator and of A are the same).
//
// With up to 16 queries the warps share out the keys of a block, each with a softmax state of its
// own, merged at the tile's end; with up to 32, and with more, they share out queries.
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

  // Index of a unit of a row of a [64][kHeadDim] block, packed as a chunk is.
  __device__ static __forceinline__ int UnitAt(int row, int unit) {
    constexpr int kPanelUnits = kPanel / kKvUnitElements;
    const int panel = unit / kPanelUnits;
    return (panel * kMmaBlockKeys + row) * kPanel +
           KvSwizzledUnit(kPanel, row, unit % kPanelUnits) * kKvUnitElements;
  }
};

// One tile's attention by one thread block. kRowWarps of the four warps share out queries, as many
// times as there are left share out keys.
template <class T, int kHeadDim, bool kReproducible, int kRowWarps>
class MmaTile {
  using Layout = MmaLayout<kHeadDim>;
  static constexpr int kKeyWarps = kMmaWarps / kRowWarps;
  static constexpr int kWarpKeys = kMmaBlockKeys / kKeyWarps;
  static constexpr int kScoreTiles = kWarpKeys / 8;
  static constexpr int kOutputTiles = kHeadDim / 8;
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
        copy_cursor_(lists, tile),
        position_cursor_(lists, tile),
        head_(args.kv.base + args.layer * args.kv.layer_bytes + kv_head * args.kv.head_bytes),
        lane_(threadIdx.x % 32),
        row_warp_(threadIdx.x / 32 % kRowWarps),
        key_warp_(threadIdx.x / 32 / kRowWarps) {}

  // The rows have been read and are visible to all threads. Leaves states and outputs written, no
  // thread of the block behind another in shared memory but for its stages.
  __device__ __forceinline__ void Attend() {
    // Blocks are counted from the tile's first key, so that with `reproducible` a key has the same
    // place in its block whatever else is in the tile.
    const int32_t begin = tile_.key_begin;
    const int32_t skipped =
        range_.begin > begin ? (range_.begin - begin) / kMmaBlockKeys * kMmaBlockKeys : 0;
    int32_t key = begin + skipped;
    if (key < range_.end) LoadBlock(0, key);
    CopyAsyncCommit();
    LoadQueries();
    Clear();
    for (int stage = 0; key < range_.end; key += kMmaBlockKeys, stage ^= 1) {
      if (key + kMmaBlockKeys < range_.end) LoadBlock(stage ^ 1, key + kMmaBlockKeys);
      CopyAsyncCommit();
      CopyAsyncWait<1>();
      __syncthreads();
      if constexpr (kReproducible) {
        if (key > begin && (key - begin) % kSegmentKeys == 0) EndSegment();
      }
      const bool idle = row_warp_ * 16 >= num_queries_ || key + key_warp_ * kWarpKeys >= range_.end;
      if (!idle) AttendBlock(stage, key);
      __syncthreads();
    }
    CopyAsyncWait<0>();
    if constexpr (kReproducible) {
      EndSegment();
      TakeTotals();
    }
    WriteStates();
  }

 private:
  __device__ __forceinline__ uint16_t* Keys(int stage) const {
    return reinterpret_cast<uint16_t*>(reinterpret_cast<unsigned char*>(shared_) +
                                       Layout::kStages) +
           2 * stage * Layout::kBlockElements;
  }
  __device__ __forceinline__ uint16_t* Values(int stage) const {
    return Keys(stage) + Layout::kBlockElements;
  }
  __device__ __forceinline__ uint16_t* Queries() const {
    return reinterpret_cast<uint16_t*>(reinterpret_cast<unsigned char*>(shared_) +
                                       Layout::kQueries);
  }
  __device__ __forceinline__ float* Outputs() const {
    return reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(shared_) + Layout::kStages);
  }
  __device__ __forceinline__ float* Totals() const {
    return reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(shared_) + Layout::kTotals) +
           threadIdx.x;
  }

  // Keys [first, first + 64) into a stage; zeros for those that no row sees, which may hold
  // anything.
  __device__ __forceinline__ void LoadBlock(int stage, int32_t first) {
    constexpr int kPanelUnits = Layout::kPanel / kKvUnitElements;
    uint16_t* const keys = Keys(stage);
    uint16_t* const values = Values(stage);
#pragma unroll 4
    for (int i = threadIdx.x; i < kMmaBlockKeys * Layout::kUnits; i += kMmaThreads) {
      const int row = i / Layout::kUnits, unit = i % Layout::kUnits;
      const int32_t key = first + row;
      const bool seen = key >= range_.begin && key < range_.end;
      const std::byte* from = head_;
      if (seen) {
        copy_cursor_.Seek(key);
        const int token = copy_cursor_.Token(key);
        const int at = (unit / kPanelUnits * args_.kv.chunk_tokens + token) * Layout::kPanel +
                       KvSwizzledUnit(Layout::kPanel, token, unit % kPanelUnits) * kKvUnitElements;
        from += copy_cursor_.chunk() * args_.kv.chunk_bytes + at * sizeof(uint16_t);
      }
      const int to = Layout::UnitAt(row, unit);
      CopyAsync16(keys + to, from, seen);
      CopyAsync16(values + to, from + args_.kv.v_offset_bytes, seen);
    }
    if (args_.window_tokens == 0) return;
    const int row = threadIdx.x;
    const int32_t key = first + row;
    if (row >= kMmaBlockKeys || key < range_.begin || key >= range_.end) return;
    position_cursor_.Seek(key);
    shared_->key_positions[stage][row] =
        args_.kv.positions[static_cast<int64_t>(position_cursor_.chunk()) * args_.kv.chunk_tokens +
                           position_cursor_.Token(key)];
  }

  // q, rounded, into shared memory, and from there into registers unless it stays.
  __device__ __forceinline__ void LoadQueries() {
    uint16_t* const to = Queries();
    for (int i = threadIdx.x; i < 16 * kRowWarps * Layout::kUnits; i += kMmaThreads) {
      const int query = i / Layout::kUnits, unit = i % Layout::kUnits;
      uint4 packed = make_uint4(0, 0, 0, 0);
      if (query < num_queries_) {
        const int row = query / num_heads_, head = first_head_ + query % num_heads_;
        const auto* const from = reinterpret_cast<const float4*>(
            args_.q + shared_->rows[row].q_row * args_.q_stride +
            static_cast<int64_t>(head) * kHeadDim + unit * kKvUnitElements);
        const float4 lo = from[0], hi = from[1];
        packed = make_uint4(PackPair<T>(lo.x, lo.y), PackPair<T>(lo.z, lo.w),
                            PackPair<T>(hi.x, hi.y), PackPair<T>(hi.z, hi.w));
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
    const int matrix = lane_ / 8, r = lane_ % 8;
    const int query = row_warp_ * 16 + matrix % 2 * 8 + r;
    LoadMatrixX4(a, Queries() + Layout::UnitAt(query, 2 * step + matrix / 2));
  }

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int tile = 0; tile < kOutputTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[tile][i] = 0.0f;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      m_[half] = total_m_[half] = -INFINITY;
      n_[half] = total_n_[half] = 0.0f;
      const int query = row_warp_ * 16 + half * 8 + lane_ / 4;
      key_begin_[half] = key_end_[half] = position_[half] = 0;
      if (query >= num_queries_) continue;
      const TileRow row = shared_->rows[query / num_heads_];
      key_begin_[half] = row.key_begin;
      key_end_[half] = row.key_end;
      position_[half] = row.position;
    }
    if constexpr (kReproducible) {
#pragma unroll
      for (int i = 0; i < 4 * kOutputTiles; ++i) Totals()[i * kMmaThreads] = 0.0f;
    }
  }

  __device__ __forceinline__ void AttendBlock(int stage, int32_t first) {
    float s[kScoreTiles][4];
    Score(stage, s);
    const int32_t warp_first = first + key_warp_ * kWarpKeys;
    if (args_.window_tokens != 0 || first < range_.all_begin ||
        first + kMmaBlockKeys > range_.all_end) {
      Mask(stage, warp_first, s);
    }
    Weigh(s);
    AddValues(stage, s);
  }

  // s = q k.
  __device__ __forceinline__ void Score(int stage, float (&s)[kScoreTiles][4]) {
#pragma unroll
    for (int tile = 0; tile < kScoreTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[tile][i] = 0.0f;
    }
    // Matrices: (keys 0-7, dims 0-7), (0-7, 8-15), (8-15, 0-7), (8-15, 8-15).
    const int matrix = lane_ / 8, r = lane_ % 8;
    const int row = key_warp_ * kWarpKeys + matrix / 2 * 8 + r;
    const uint16_t* const keys = Keys(stage);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (Layout::kQueriesStay) LoadQueryStep(step, q_[0]);
      const uint32_t(&a)[4] = q_[Layout::kQueriesStay ? 0 : step];
#pragma unroll
      for (int pair = 0; pair < kScoreTiles / 2; ++pair) {
        uint32_t k[4];
        LoadMatrixX4(k, keys + Layout::UnitAt(row + 16 * pair, 2 * step + matrix % 2));
        MmaM16N8K16<T>(s[2 * pair], a, {k[0], k[1]});
        MmaM16N8K16<T>(s[2 * pair + 1], a, {k[2], k[3]});
      }
    }
  }

  // Minus infinity for keys that a row does not see.
  __device__ __forceinline__ void Mask(int stage, int32_t warp_first,
                                       float (&s)[kScoreTiles][4]) const {
#pragma unroll
    for (int tile = 0; tile < kScoreTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2;
        const int in_warp = 8 * tile + 2 * (lane_ % 4) + i % 2;
        const int32_t key = warp_first + in_warp;
        bool seen = key >= key_begin_[half] && key < key_end_[half];
        if (args_.window_tokens != 0) {
          const int32_t at = shared_->key_positions[stage][key_warp_ * kWarpKeys + in_warp];
          seen = seen && position_[half] - at < args_.window_tokens;
        }
        if (!seen) s[tile][i] = -INFINITY;
      }
    }
  }

  // Scores to weights; the state moves to the new maxima.
  __device__ __forceinline__ void Weigh(float (&s)[kScoreTiles][4]) {
    const float scale = args_.scale * kLogTwoE;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = -INFINITY;
#pragma unroll
      for (int tile = 0; tile < kScoreTiles; ++tile) {
        max = fmaxf(max, fmaxf(s[tile][2 * half], s[tile][2 * half + 1]));
      }
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
      max = fmaxf(max * scale, m_[half]);
      const float base = max == -INFINITY ? 0.0f : max;
      const float rescale = ExpTwo(m_[half] - base);
      m_[half] = max;
      float sum = 0.0f;
#pragma unroll
      for (int tile = 0; tile < kScoreTiles; ++tile) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[tile][i] = ExpTwo(fmaf(s[tile][i], scale, -base));
          sum += s[tile][i];
        }
      }
      n_[half] = fmaf(n_[half], rescale, sum);
#pragma unroll
      for (int tile = 0; tile < kOutputTiles; ++tile) {
        o_[tile][2 * half] *= rescale;
        o_[tile][2 * half + 1] *= rescale;
      }
    }
  }

  // o += weights v.
  __device__ __forceinline__ void AddValues(int stage, const float (&s)[kScoreTiles][4]) {
    // Transposed matrices: (keys 0-7, dims 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
    const int matrix = lane_ / 8, r = lane_ % 8;
    const int row = key_warp_ * kWarpKeys + matrix % 2 * 8 + r;
    const uint16_t* const values = Values(stage);
#pragma unroll
    for (int step = 0; step < kWarpKeys / 16; ++step) {
      const float(&lo)[4] = s[2 * step];
      const float(&hi)[4] = s[2 * step + 1];
      const uint32_t a[4] = {PackPair<T>(lo[0], lo[1]), PackPair<T>(lo[2], lo[3]),
                             PackPair<T>(hi[0], hi[1]), PackPair<T>(hi[2], hi[3])};
#pragma unroll
      for (int pair = 0; pair < kOutputTiles / 2; ++pair) {
        uint32_t v[4];
        LoadMatrixX4Transposed(v, values + Layout::UnitAt(row + 16 * step, 2 * pair + matrix / 2));
        MmaM16N8K16<T>(o_[2 * pair], a, {v[0], v[1]});
        MmaM16N8K16<T>(o_[2 * pair + 1], a, {v[2], v[3]});
      }
    }
  }

  // n of a row is spread over four lanes.
  __device__ __forceinline__ void GatherSums() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      n_[half] += __shfl_xor_sync(~0u, n_[half], 1);
      n_[half] += __shfl_xor_sync(~0u, n_[half], 2);
    }
  }

  // The segment's state goes to the right of those before it.
  __device__ __forceinline__ void EndSegment() {
    GatherSums();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float left, right;
      MergeStates(total_m_[half], total_n_[half], m_[half], n_[half], left, right);
#pragma unroll
      for (int tile = 0; tile < kOutputTiles; ++tile) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          float& total = Totals()[(4 * tile + i) * kMmaThreads];
          total = MergeElement(total, o_[tile][i], left, right);
          o_[tile][i] = 0.0f;
        }
      }
      m_[half] = -INFINITY;
      n_[half] = 0.0f;
    }
  }

  __device__ __forceinline__ void TakeTotals() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      m_[half] = total_m_[half];
      n_[half] = total_n_[half];
    }
#pragma unroll
    for (int i = 0; i < 4 * kOutputTiles; ++i) o_[i / 4][i % 4] = Totals()[i * kMmaThreads];
  }

  // Every warp's state to shared memory, from there merged and in whole rows to where they belong.
  __device__ __forceinline__ void WriteStates() {
    if constexpr (!kReproducible) GatherSums();
    const int warp = threadIdx.x / 32;
    float* const own = Outputs() + warp * 16 * Layout::kOutputStride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 8 + lane_ / 4;
#pragma unroll
      for (int tile = 0; tile < kOutputTiles; ++tile) {
        *reinterpret_cast<float2*>(own + row * Layout::kOutputStride + 8 * tile + 2 * (lane_ % 4)) =
            make_float2(o_[tile][2 * half], o_[tile][2 * half + 1]);
      }
      if (lane_ % 4 == 0) {
        shared_->mn[warp][row][0] = m_[half];
        shared_->mn[warp][row][1] = n_[half];
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
          Outputs() + (warp * 16 + query % 16) * Layout::kOutputStride + lane_;
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
      if (lane_ == 0) {
        StateMN(args_, state)[0] = m;
        StateMN(args_, state)[1] = n;
      }
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) to[32 * i + lane_] = o[i];
  }

  const ChunkAttentionLaunch& args_;
  const AttentionTile& tile_;
  const int32_t first_head_, num_heads_;
  const int num_queries_;
  MmaShared* const shared_;
  const KeyRange range_;
  KeyCursor copy_cursor_, position_cursor_;
  const std::byte* const head_;  // of chunk 0
  const int lane_, row_warp_, key_warp_;

  uint32_t q_[kQuerySteps][4];
  float o_[kOutputTiles][4];
  // Of rows lane / 4 and lane / 4 + 8 of the warp's 16.
  float m_[2], n_[2];
  float total_m_[2], total_n_[2];
  int32_t key_begin_[2], key_end_[2], position_[2];
};

template <class T, int kHeadDim, bool kReproducible>
__global__ void __launch_bounds__(kMmaThreads)
    MmaAttentionKernel(ChunkAttentionLaunch args, HeadBlocks head_blocks) {
  MmaShared* const shared = SharedMemory<MmaShared>();
  const TileLists lists = ReadTileLists(args.tiles);
  const int32_t num_items = args.tiles->num_shares * head_blocks.count();
  for (int32_t item = blockIdx.x; item < num_items; item += gridDim.x) {
    const int32_t share = item / head_blocks.count();
    const int32_t head_block = item % head_blocks.count();
    const int32_t first_head = head_blocks.FirstHead(head_block);
    const int32_t num_heads = head_blocks.NumHeads(head_block);
    const int32_t kv_head = head_blocks.KvHead(head_block);
    for (int32_t t = lists.share_begin[share]; t < lists.share_begin[share + 1]; ++t) {
      const AttentionTile tile = lists.tiles[t];
      ReadTileRows(args, lists, tile, shared->rows);
      __syncthreads();
      const auto attend = [&]<int kRowWarps>() {
        MmaTile<T, kHeadDim, kReproducible, kRowWarps>(args, lists, tile, first_head, num_heads,
                                                       kv_head, shared)
            .Attend();
      };
      const int num_queries = tile.num_rows * num_heads;
      if (kReproducible || num_queries > 32) {
        attend.template operator()<4>();  // always, where the arithmetic may not depend on others
      } else if (num_queries > 16) {
        attend.template operator()<2>();
      } else {
        attend.template operator()<1>();
      }
      FinishTile(args, head_blocks, lists, tile, head_block, shared->finished);
      __syncthreads();
    }
  }
}

template <class T, int kHeadDim, bool kReproducible>
void LaunchMmaKernel(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                     const ChunkAttentionLaunch& args) {
  LaunchShape shape;
  shape.grid = dim3(grid_blocks);
  shape.block = dim3(kMmaThreads);
  shape.shared_bytes = MmaAttentionSharedBytes(kHeadDim, kReproducible);
  shape.kernel = "chunk attention (mma)";
  Launch(stream, shape, MmaAttentionKernel<T, kHeadDim, kReproducible>, args, head_blocks);
}

template <class T, bool kReproducible>
void LaunchMmaOfHeadDim(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                        const ChunkAttentionLaunch& args) {
  switch (args.kv.head_dim) {
    case 64:
      return LaunchMmaKernel<T, 64, kReproducible>(stream, grid_blocks, head_blocks, args);
    case 96:
      return LaunchMmaKernel<T, 96, kReproducible>(stream, grid_blocks, head_blocks, args);
    case 128:
      return LaunchMmaKernel<T, 128, kReproducible>(stream, grid_blocks, head_blocks, args);
    case 256:
      return LaunchMmaKernel<T, 256, kReproducible>(stream, grid_blocks, head_blocks, args);
  }
}

template <class T>
void LaunchMmaOfType(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                     const ChunkAttentionLaunch& args) {
  if (args.reproducible) {
    LaunchMmaOfHeadDim<T, true>(stream, grid_blocks, head_blocks, args);
  } else {
    LaunchMmaOfHeadDim<T, false>(stream, grid_blocks, head_blocks, args);
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CHUNK_ATTENTION_MMA_KERNEL_H_
