#include "kernels/cuda/elementwise.h"

#include <algorithm>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/dtype_visit.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/kv_elements.h"
#include "kernels/cuda/kv_packing.h"
#include "kernels/cuda/load_weights.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAllLanes = 0xffffffffu;

// Threads for a row of `items`: whole warps, no more than are of use.
unsigned ThreadsFor(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + 31) / 32 * 32, 32, kThreads));
}

dim3 RowGrid(int64_t rows) { return dim3(static_cast<unsigned>(rows)); }

__device__ __forceinline__ float Silu(float x) { return x / (1.0f + expf(-x)); }

template <DType kDType>
__global__ void __launch_bounds__(kThreads) Embed(EmbedLaunch args) {
  const int64_t id = TokenOf(args.ids[blockIdx.x], args.sampled) - args.row_begin;
  if (id < 0 || id >= args.table.rows) return;
  const std::byte* const row = args.table.data + id * args.table.row_bytes;
  float* const out = args.out.data + blockIdx.x * args.out.stride;
  for (int64_t k = 8 * threadIdx.x; k < args.table.cols; k += 8 * blockDim.x) {
    float values[8];
    LoadWeights8<kDType>(row, row + args.table.side_bytes, k, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (k + i < args.table.cols) out[k + i] = values[i];
    }
  }
}

// The sum over the block, in every thread; `partial` has a float per warp.
__device__ __forceinline__ float SumOverBlock(float value, float* partial) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += partial[warp];
  return sum;
}

__global__ void __launch_bounds__(kThreads) RmsNorm(RmsNormLaunch args) {
  const int64_t row = args.row_indexes == nullptr ? blockIdx.x : args.row_indexes[blockIdx.x];
  const float* const x = args.x.data + row * args.x.stride;
  float* const out = args.out.data + blockIdx.x * args.out.stride;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < args.cols; i += blockDim.x) squares += x[i] * x[i];
  squares = SumOverBlock(squares, SharedMemory<float>());
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.cols) + args.eps);
  for (int64_t i = threadIdx.x; i < args.cols; i += blockDim.x) {
    out[i] = x[i] * scale * args.weight[i];
  }
}

// Elements i and i + half of a head, turned; the same order of products everywhere, never fused.
__device__ __forceinline__ void Turn(float& a, float& b, float cos, float sin) {
  const float turned = __fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, sin));
  b = __fadd_rn(__fmul_rn(b, cos), __fmul_rn(a, sin));
  a = turned;
}

__device__ __forceinline__ bool IsFinite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// One block per row: q and k turned in place, k and v stored. Shared memory: an int per KV head.
template <class T>
__global__ void __launch_bounds__(kThreads) RopeAppend(RopeAppendLaunch args) {
  const int d = args.kv.head_dim, kv_heads = args.kv.num_kv_heads;
  const int half = args.table.rope_dim / 2;
  const int64_t row = blockIdx.x;
  float* const qkv = args.qkv.data + row * args.qkv.stride;
  const int64_t position = args.positions[row];
  const float* const cos = args.table.cos + position * half;
  const float* const sin = args.table.sin + position * half;
  for (int i = static_cast<int>(threadIdx.x); i < (args.num_heads + kv_heads) * half;
       i += static_cast<int>(blockDim.x)) {
    float* const head = qkv + i / half * d;
    const int pair = i % half;
    Turn(head[pair], head[pair + half], cos[pair], sin[pair]);
  }
  const KvSlotRef to = args.destinations[row];
  if (to.chunk < 0) return;  // of the whole block
  int* const not_finite = SharedMemory<int>();
  for (int h = static_cast<int>(threadIdx.x); h < kv_heads; h += static_cast<int>(blockDim.x)) {
    not_finite[h] = 0;
  }
  __syncthreads();
  const float* const k = qkv + args.num_heads * d;
  const float* const v = k + kv_heads * d;
  const auto index = [&](int i) {
    return KvElementIndex(kKvElementBytes<T>, d, args.kv.chunk_tokens, to.offset, i % d);
  };
  for (int i = static_cast<int>(threadIdx.x); i < kv_heads * d; i += static_cast<int>(blockDim.x)) {
    std::byte* const values = args.kv.Values(to.chunk, args.layer, i / d);
    StoreKv<T>(args.kv.Keys(to.chunk, args.layer, i / d), index(i), k[i]);
    StoreKv<T>(values, index(i), v[i]);
    if (!IsFinite(LoadKv<T>(values, index(i)))) not_finite[i / d] = 1;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kv_heads * d; i += static_cast<int>(blockDim.x)) {
    if (not_finite[i / d] == 0) continue;
    StoreKv<T>(args.kv.Keys(to.chunk, args.layer, i / d), index(i), __uint_as_float(0x7fc00000u));
    StoreKv<T>(args.kv.Values(to.chunk, args.layer, i / d), index(i), 0.0f);
  }
}

// One block per row and stretch of columns.
__global__ void __launch_bounds__(kThreads) SwiGlu(SwiGluLaunch args) {
  const int64_t row = blockIdx.y, col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= args.cols) return;
  const float gate = args.gate.data[row * args.gate.stride + col];
  args.out.data[row * args.out.stride + col] =
      Silu(gate) * args.up.data[row * args.up.stride + col];
}

__global__ void __launch_bounds__(kThreads) Add(AddLaunch args) {
  const int64_t row = blockIdx.y, col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= args.cols) return;
  args.x.data[row * args.x.stride + col] += args.y.data[row * args.y.stride + col];
}

// Calls launch(first row, grid) for the rows, as many at a time as a grid has.
template <class Fn>
void ForRowStretches(int64_t rows, int64_t cols, unsigned threads, const Fn& launch) {
  constexpr int64_t kMostRows = 65535;
  const auto blocks = static_cast<unsigned>((cols + threads - 1) / threads);
  for (int64_t row = 0; row < rows; row += kMostRows) {
    launch(row, dim3(blocks, static_cast<unsigned>(std::min(kMostRows, rows - row))));
  }
}

DeviceRows From(const DeviceRows& rows, int64_t row) {
  return {rows.data + row * rows.stride, rows.stride};
}

}  // namespace

void LaunchEmbed(Stream& stream, const EmbedLaunch& args) {
  if (args.rows == 0) return;
  VisitDType<DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
             DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K>(
      args.table.dtype, [&](auto dtype) {
        const unsigned threads = ThreadsFor((args.table.cols + 7) / 8);
        Launch(stream, {RowGrid(args.rows), threads, 0, "Embed"}, Embed<dtype()>, args);
      });
}

void LaunchRmsNorm(Stream& stream, const RmsNormLaunch& args) {
  if (args.rows == 0) return;
  const unsigned threads = ThreadsFor(args.cols);
  Launch(stream, {RowGrid(args.rows), threads, threads / 32 * sizeof(float), "RmsNorm"}, RmsNorm,
         args);
}

void LaunchRopeAppend(Stream& stream, const RopeAppendLaunch& args) {
  if (args.rows == 0) return;
  const int kv_heads = args.kv.num_kv_heads;
  const unsigned threads = ThreadsFor(
      std::max((args.num_heads + kv_heads) * args.table.rope_dim / 2, kv_heads * args.kv.head_dim));
  const LaunchShape shape = {RowGrid(args.rows), threads, kv_heads * sizeof(int), "RopeAppend"};
  switch (args.kv.dtype) {
    case DType::kF16:
      return Launch(stream, shape, RopeAppend<F16>, args);
    case DType::kBF16:
      return Launch(stream, shape, RopeAppend<BF16>, args);
    case DType::kF8E4M3:
      return Launch(stream, shape, RopeAppend<E4M3>, args);
    default:
      return Launch(stream, shape, RopeAppend<float>, args);
  }
}

void LaunchSwiGlu(Stream& stream, const SwiGluLaunch& args) {
  const unsigned threads = ThreadsFor(args.cols);
  ForRowStretches(args.rows, args.cols, threads, [&](int64_t row, dim3 grid) {
    SwiGluLaunch part = args;
    part.gate = From(args.gate, row);
    part.up = From(args.up, row);
    part.out = From(args.out, row);
    Launch(stream, {grid, threads, 0, "SwiGlu"}, SwiGlu, part);
  });
}

void LaunchAdd(Stream& stream, const AddLaunch& args) {
  const unsigned threads = ThreadsFor(args.cols);
  ForRowStretches(args.rows, args.cols, threads, [&](int64_t row, dim3 grid) {
    AddLaunch part = args;
    part.x = From(args.x, row);
    part.y = From(args.y, row);
    Launch(stream, {grid, threads, 0, "Add"}, Add, part);
  });
}

}  // namespace refrain::kernels::cuda
