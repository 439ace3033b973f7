#include "kernels/cuda/chunk_attention_generic.h"

#include <cstdint>

#include "kernels/cuda/attention_device.h"
#include "kernels/cuda/kv_elements.h"
#include "kernels/cuda/kv_packing.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kQueries = kGenericAttentionQueries;
constexpr int kBlockKeys = 32;  // read at a time: one per lane

// Behind it in shared memory, with row strides of head_dim + 1: keys or values [kBlockKeys], q, o
// and, with `reproducible`, the o of the segments before [kQueries].
struct Shared {
  TileRow rows[kQueries];
  int64_t key_offset[kBlockKeys];  // of the key's row of K in the pool, -1: not read
  int32_t key_token[kBlockKeys];
  int32_t key_position[kBlockKeys];
  float weights[kQueries][kBlockKeys];
  float rescale[kQueries];
  // States: of the tile, or of its current segment; of the segments before.
  float m[kQueries], n[kQueries];
  float total_m[kQueries], total_n[kQueries];
  int32_t finished[kQueries];
};

__host__ __device__ constexpr int Stride(int head_dim) { return head_dim + 1; }

struct Buffers {
  float* kv;
  float* q;
  float* o;
  float* total_o;
};

__device__ __forceinline__ Buffers BuffersOf(Shared* shared, int head_dim) {
  Buffers buffers;
  buffers.kv = reinterpret_cast<float*>(shared + 1);
  buffers.q = buffers.kv + kBlockKeys * Stride(head_dim);
  buffers.o = buffers.q + kQueries * Stride(head_dim);
  buffers.total_o = buffers.o + kQueries * Stride(head_dim);
  return buffers;
}

struct Work {
  AttentionTile tile;
  int32_t first_head, num_heads, kv_head;
  int num_queries;
};

// K or V of the block's keys as floats; zeros for keys that no row sees.
template <class T>
__device__ __forceinline__ void LoadBlock(const ChunkAttentionLaunch& args, const Shared& shared,
                                          bool values, float* to) {
  const int head_dim = args.kv.head_dim;
  const int c = args.kv.chunk_tokens;
  for (int i = threadIdx.x; i < kBlockKeys * head_dim; i += kThreads) {
    const int key = i / head_dim, dim = i % head_dim;
    const int64_t offset = shared.key_offset[key];
    float value = 0.0f;
    if (offset >= 0) {
      const std::byte* const head =
          args.kv.base + offset + (values ? args.kv.v_offset_bytes : size_t{0});
      value = LoadKv<T>(
          head, KvElementIndex(kKvElementBytes<T>, head_dim, c, shared.key_token[key], dim));
    }
    to[key * Stride(head_dim) + dim] = value;
  }
}

__device__ __forceinline__ float WarpMax(float x) {
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, x, step);
    x = other > x ? other : x;
  }
  return x;
}

__device__ __forceinline__ float WarpSum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// Weights of the block's keys [first, first + kBlockKeys), a warp per query and a lane per key.
__device__ __forceinline__ void ScoreBlock(const ChunkAttentionLaunch& args, const Work& work,
                                           Shared* shared, const Buffers& buffers, int32_t first) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_dim = args.kv.head_dim;
  const float* const k = buffers.kv + lane * Stride(head_dim);
  for (int query = warp; query < work.num_queries; query += kWarps) {
    const TileRow row = shared->rows[query / work.num_heads];
    const float* const q = buffers.q + query * Stride(head_dim);
    const int32_t key = first + lane;
    bool seen = key >= row.key_begin && key < row.key_end;
    if (seen && args.window_tokens != 0) {
      seen = row.position - shared->key_position[lane] < args.window_tokens;
    }
    float score = -INFINITY;
    if (seen) {
      score = 0.0f;
      for (int i = 0; i < head_dim; ++i) score += q[i] * k[i];
    }
    const float old = shared->m[query];
    const float block_max = WarpMax(score);
    const float m = block_max > old ? block_max : old;
    const float weight = seen ? ExpTwo(score - m) : 0.0f;
    const float sum = WarpSum(weight);
    shared->weights[query][lane] = weight;
    __syncwarp();  // a shuffle orders no memory: all have read m
    if (lane == 0) {
      const float rescale = old == -INFINITY ? 0.0f : ExpTwo(old - m);
      shared->rescale[query] = rescale;
      shared->m[query] = m;
      shared->n[query] = fmaf(shared->n[query], rescale, sum);
    }
  }
}

__device__ __forceinline__ void AddValues(const ChunkAttentionLaunch& args, const Work& work,
                                          const Shared& shared, const Buffers& buffers) {
  const int head_dim = args.kv.head_dim;
  for (int i = threadIdx.x; i < work.num_queries * head_dim; i += kThreads) {
    const int query = i / head_dim, dim = i % head_dim;
    float& o = buffers.o[query * Stride(head_dim) + dim];
    float sum = o * shared.rescale[query];
    const float* const v = buffers.kv + dim;
    for (int key = 0; key < kBlockKeys; ++key) {
      sum += shared.weights[query][key] * v[key * Stride(head_dim)];
    }
    o = sum;
  }
}

__device__ __forceinline__ void ClearState(const ChunkAttentionLaunch& args, const Work& work,
                                           Shared* shared, const Buffers& buffers) {
  for (int i = threadIdx.x; i < work.num_queries * args.kv.head_dim; i += kThreads) {
    buffers.o[i / args.kv.head_dim * Stride(args.kv.head_dim) + i % args.kv.head_dim] = 0.0f;
  }
  for (int query = threadIdx.x; query < work.num_queries; query += kThreads) {
    shared->m[query] = -INFINITY;
    shared->n[query] = 0.0f;
  }
}

// A segment has ended: its state goes to the right of those before it.
__device__ __forceinline__ void EndSegment(const ChunkAttentionLaunch& args, const Work& work,
                                           Shared* shared, const Buffers& buffers) {
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_dim = args.kv.head_dim;
  for (int query = warp; query < work.num_queries; query += kWarps) {
    float m = shared->total_m[query], n = shared->total_n[query], left, right;
    MergeStates(m, n, shared->m[query], shared->n[query], left, right);
    for (int dim = lane; dim < head_dim; dim += 32) {
      float& total = buffers.total_o[query * Stride(head_dim) + dim];
      float& o = buffers.o[query * Stride(head_dim) + dim];
      total = MergeElement(total, o, left, right);
      o = 0.0f;
    }
    __syncwarp();
    if (lane == 0) {
      shared->total_m[query] = m;
      shared->total_n[query] = n;
      shared->m[query] = -INFINITY;
      shared->n[query] = 0.0f;
    }
  }
  __syncthreads();
}

__device__ __forceinline__ void LoadQueries(const ChunkAttentionLaunch& args, const Work& work,
                                            const Shared& shared, const Buffers& buffers) {
  const int head_dim = args.kv.head_dim;
  for (int i = threadIdx.x; i < work.num_queries * head_dim; i += kThreads) {
    const int query = i / head_dim, dim = i % head_dim;
    const int head = work.first_head + query % work.num_heads;
    const float q = args.q[shared.rows[query / work.num_heads].q_row * args.q_stride +
                           static_cast<int64_t>(head) * head_dim + dim];
    buffers.q[query * Stride(head_dim) + dim] = q * (args.scale * kLogTwoE);
    if (args.reproducible) buffers.total_o[query * Stride(head_dim) + dim] = 0.0f;
  }
}

__device__ __forceinline__ void WriteStates(const ChunkAttentionLaunch& args, const Work& work,
                                            const Shared& shared, const Buffers& buffers) {
  const int head_dim = args.kv.head_dim;
  const float* const m = args.reproducible ? shared.total_m : shared.m;
  const float* const n = args.reproducible ? shared.total_n : shared.n;
  const float* const all_o = args.reproducible ? buffers.total_o : buffers.o;
  for (int i = threadIdx.x; i < work.num_queries * head_dim; i += kThreads) {
    const int query = i / head_dim, dim = i % head_dim;
    const int head = work.first_head + query % work.num_heads;
    const TileRow& row = shared.rows[query / work.num_heads];
    const float o = all_o[query * Stride(head_dim) + dim];
    if (row.partial_row < 0) {
      const float scale = n[query] == 0.0f ? 0.0f : 1.0f / n[query];
      args.out[row.q_row * args.out_stride + static_cast<int64_t>(head) * head_dim + dim] =
          o * scale;
      continue;
    }
    const int64_t state = StateIndex(args, row.partial_row, head);
    StateO(args, state)[dim] = o;
    if (dim == 0) {
      StateMN(args, state)[0] = m[query];
      StateMN(args, state)[1] = n[query];
    }
  }
}

// Where the block's keys lie; thread i has key first + i.
__device__ __forceinline__ void LocateKeys(const ChunkAttentionLaunch& args, const Work& work,
                                           const KeyRange& range, int32_t first, KeyCursor& cursor,
                                           Shared* shared) {
  const int i = threadIdx.x;
  if (i >= kBlockKeys) return;
  const int32_t key = first + i;
  shared->key_offset[i] = -1;
  if (key < range.begin || key >= range.end) return;
  cursor.Seek(key);
  const int32_t token = cursor.Token(key);
  shared->key_offset[i] = static_cast<int64_t>(cursor.chunk()) * args.kv.chunk_bytes +
                          args.layer * args.kv.layer_bytes + work.kv_head * args.kv.head_bytes;
  shared->key_token[i] = token;
  if (args.window_tokens != 0) {
    shared->key_position[i] =
        args.kv.positions[static_cast<int64_t>(cursor.chunk()) * args.kv.chunk_tokens + token];
  }
}

template <class T>
__device__ __forceinline__ void AttendTile(const ChunkAttentionLaunch& args, const TileLists& lists,
                                           const Work& work, Shared* shared,
                                           const Buffers& buffers) {
  ReadTileRows(args, lists, work.tile, shared->rows);
  __syncthreads();
  LoadQueries(args, work, *shared, buffers);
  ClearState(args, work, shared, buffers);
  for (int query = threadIdx.x; query < work.num_queries; query += kThreads) {
    shared->total_m[query] = -INFINITY;
    shared->total_n[query] = 0.0f;
  }
  const KeyRange range = RangeOfRows(shared->rows, work.tile.num_rows);
  KeyCursor cursor(lists, work.tile);
  // Blocks are counted from the tile's first key, so that with `reproducible` a key has the same
  // place in its block whatever else is in the tile.
  const int32_t begin = work.tile.key_begin;
  const int32_t skipped = range.begin > begin ? (range.begin - begin) / kBlockKeys : 0;
  for (int32_t key = begin + skipped * kBlockKeys; key < range.end; key += kBlockKeys) {
    if (args.reproducible && key > begin && (key - begin) % kSegmentKeys == 0) {
      EndSegment(args, work, shared, buffers);
    }
    LocateKeys(args, work, range, key, cursor, shared);
    __syncthreads();
    LoadBlock<T>(args, *shared, /*values=*/false, buffers.kv);
    __syncthreads();
    ScoreBlock(args, work, shared, buffers, key);
    __syncthreads();
    LoadBlock<T>(args, *shared, /*values=*/true, buffers.kv);
    __syncthreads();
    AddValues(args, work, *shared, buffers);
    __syncthreads();
  }
  if (args.reproducible) EndSegment(args, work, shared, buffers);
  __syncthreads();
  WriteStates(args, work, *shared, buffers);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    GenericAttentionKernel(ChunkAttentionLaunch args, HeadBlocks head_blocks) {
  Shared* const shared = SharedMemory<Shared>();
  const Buffers buffers = BuffersOf(shared, args.kv.head_dim);
  const TileLists lists = ReadTileLists(args.tiles);
  const int32_t num_items = args.tiles->num_shares * head_blocks.count();
  for (int32_t item = blockIdx.x; item < num_items; item += gridDim.x) {
    const int32_t share = item / head_blocks.count();
    const int32_t head_block = item % head_blocks.count();
    Work work;
    work.first_head = head_blocks.FirstHead(head_block);
    work.num_heads = head_blocks.NumHeads(head_block);
    work.kv_head = head_blocks.KvHead(head_block);
    for (int32_t t = lists.share_begin[share]; t < lists.share_begin[share + 1]; ++t) {
      work.tile = lists.tiles[t];
      work.num_queries = work.tile.num_rows * work.num_heads;
      AttendTile<T>(args, lists, work, shared, buffers);
      FinishTile(args, head_blocks, lists, work.tile, head_block, shared->finished);
      __syncthreads();
    }
  }
}

}  // namespace

size_t GenericAttentionSharedBytes(int head_dim, bool reproducible) {
  const int rows = kBlockKeys + (reproducible ? 3 : 2) * kQueries;
  return sizeof(Shared) + sizeof(float) * rows * Stride(head_dim);
}

void LaunchGenericAttention(Stream& stream, int grid_blocks, const HeadBlocks& head_blocks,
                            const ChunkAttentionLaunch& args) {
  LaunchShape shape;
  shape.grid = dim3(grid_blocks);
  shape.block = dim3(kThreads);
  shape.shared_bytes = GenericAttentionSharedBytes(args.kv.head_dim, args.reproducible);
  shape.kernel = "chunk attention (generic)";
  switch (args.kv.dtype) {
    case DType::kF16:
      Launch(stream, shape, GenericAttentionKernel<F16>, args, head_blocks);
      return;
    case DType::kBF16:
      Launch(stream, shape, GenericAttentionKernel<BF16>, args, head_blocks);
      return;
    case DType::kF8E4M3:
      Launch(stream, shape, GenericAttentionKernel<E4M3>, args, head_blocks);
      return;
    default:
      Launch(stream, shape, GenericAttentionKernel<float>, args, head_blocks);
  }
}

}  // namespace refrain::kernels::cuda
