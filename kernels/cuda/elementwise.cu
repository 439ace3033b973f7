#include "kernels/cuda/elementwise.h"

#include <algorithm>

#include "kernels/cuda/device_language.h"
#include "kernels/cuda/dtype_visit.h"
#include "kernels/cuda/instructions.h"
#include "kernels/cuda/kv_elements.h"
#include "kernels/cuda/kv_packing.h"
#include "kernels/cuda/load_activations.h"
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
  const unsigned lane = threadIdx.x % 32;
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  if (lane == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? partial[lane] : 0.0f;
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}

constexpr int kNormThreads = 1024, kNormUnits = 4;  // of four elements, that a thread holds

// x[0] to x[3], zeros from x[left] on.
template <bool kAligned>
__device__ __forceinline__ float4 LoadUnit(const float* x, int64_t left) {
  if (kAligned && left >= 4) return *reinterpret_cast<const float4*>(x);
  return make_float4(left > 0 ? x[0] : 0.0f, left > 1 ? x[1] : 0.0f, left > 2 ? x[2] : 0.0f,
                     left > 3 ? x[3] : 0.0f);
}

__device__ __forceinline__ float SquaresOf(const float4& v) {
  return (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
}

// Elements `at` to `at` + 3 of a row, rounded.
__device__ __forceinline__ void StoreRounded(const RoundedRows& to, int64_t row, int64_t at,
                                             const float4& y) {
  const uint2 pairs = to.bf16 ? make_uint2(PackInRange<BF16>(y.x, y.y), PackInRange<BF16>(y.z, y.w))
                              : make_uint2(PackInRange<F16>(y.x, y.y), PackInRange<F16>(y.z, y.w));
  *reinterpret_cast<uint2*>(to.data + 2 * (row * to.stride + at)) = pairs;
}

// A block's row is in registers, as far as they go: it is read once, by as many threads as there
// are, and nobody waits for one element after the other. The same sums however rows are aligned.
template <bool kAligned>
__global__ void __launch_bounds__(kNormThreads) RmsNorm(RmsNormLaunch args) {
  const int64_t row = args.row_indexes == nullptr ? blockIdx.x : args.row_indexes[blockIdx.x];
  const int64_t group = blockIdx.y * args.cols;
  const float* const x = args.x.data + row * args.x.stride + group;
  float* const out = args.out.data + blockIdx.x * args.out.stride + group;
  const int64_t step = int64_t{4} * blockDim.x, first = int64_t{4} * threadIdx.x;
  float4 held[kNormUnits];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kNormUnits; ++i) {
    held[i] = LoadUnit<kAligned>(x + first + i * step, args.cols - first - i * step);
  }
#pragma unroll
  for (const float4& unit : held) squares += SquaresOf(unit);
  for (int64_t at = first + kNormUnits * step; at < args.cols; at += step) {
    squares += SquaresOf(LoadUnit<kAligned>(x + at, args.cols - at));
  }
  squares = SumOverBlock(squares, SharedMemory<float>());
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(args.cols) + args.eps);
  const auto store = [&](int64_t at, const float4& v) {
    const int64_t left = args.cols - at;
    const float4 w = LoadUnit<kAligned>(args.weight + at, left);
    const float4 y =
        make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
    if (args.rounded.data != nullptr && left >= 4) {
      StoreRounded(args.rounded, blockIdx.x, at, y);
    }
    if (kAligned && left >= 4) {
      *reinterpret_cast<float4*>(out + at) = y;
      return;
    }
    if (left > 0) out[at] = y.x;
    if (left > 1) out[at + 1] = y.y;
    if (left > 2) out[at + 2] = y.z;
    if (left > 3) out[at + 3] = y.w;
  };
#pragma unroll
  for (int i = 0; i < kNormUnits; ++i) store(first + i * step, held[i]);
  for (int64_t at = first + kNormUnits * step; at < args.cols; at += step) {
    store(at, LoadUnit<kAligned>(x + at, args.cols - at));
  }
}

// Elements i and i + half of a head, turned; the same order of products everywhere, never fused.
__device__ __forceinline__ void Turn(float& a, float& b, float cos, float sin) {
  const float turned = __fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, sin));
  b = __fadd_rn(__fmul_rn(b, cos), __fmul_rn(a, sin));
  a = turned;
}

constexpr int kRopeWarps = 4;

// A warp for each row and query head, or KV head: q and k turned in place, k and v stored.
template <class T>
__global__ void __launch_bounds__(kRopeWarps * 32) RopeAppend(RopeAppendLaunch args) {
  LetDependentsStart();
  const int d = args.kv.head_dim, kv_heads = args.kv.num_kv_heads;
  const int half = args.table.rope_dim / 2;
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y * kRopeWarps + threadIdx.x / 32);
  if (head >= args.num_heads + kv_heads) return;
  float* const x = args.qkv.data + row * args.qkv.stride + head * d;
  const int64_t position = args.positions[row];
  const float* const cos = args.table.cos + position * half;
  const float* const sin = args.table.sin + position * half;
#pragma unroll 4
  for (int pair = lane; pair < half; pair += 32)
    Turn(x[pair], x[pair + half], cos[pair], sin[pair]);
  const int kv_head = head - args.num_heads;
  const KvSlotRef to = args.destinations[row];
  if (kv_head < 0 || to.chunk < 0) return;
  __syncwarp();  // lanes store what others have turned
  const float* const v = x + kv_heads * d;
  std::byte* const keys = args.kv.Keys(to.chunk, args.layer, kv_head);
  std::byte* const values = args.kv.Values(to.chunk, args.layer, kv_head);
  const auto index = [&](int i) {
    return KvElementIndex(kKvElementBytes<T>, d, args.kv.chunk_tokens, to.offset, i);
  };
  bool finite = true;
#pragma unroll 4
  for (int i = lane; i < d; i += 32) {
    StoreKv<T>(keys, index(i), x[i]);
    StoreKv<T>(values, index(i), v[i]);
    finite = finite && IsFiniteAs<T>(x[i]) && IsFiniteAs<T>(v[i]);
  }
  if (__any_sync(kAllLanes, !finite) == 0) return;
  for (int i = lane; i < d; i += 32) {
    StoreKv<T>(keys, index(i), __uint_as_float(0x7fc00000u));
    StoreKv<T>(values, index(i), 0.0f);
  }
}

// One block per row and stretch of columns.
__global__ void __launch_bounds__(kThreads) SwiGlu(SwiGluLaunch args) {
  const int64_t row = blockIdx.y, col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= args.cols) return;
  const float gate = args.gate.data[row * args.gate.stride + col];
  const float y = Silu(gate) * args.up.data[row * args.up.stride + col];
  args.out.data[row * args.out.stride + col] = y;
  if (args.rounded.data == nullptr) return;
  const uint32_t pair = args.rounded.bf16 ? PackInRange<BF16>(y, 0.0f) : PackInRange<F16>(y, 0.0f);
  reinterpret_cast<uint16_t*>(args.rounded.data)[row * args.rounded.stride + col] =
      static_cast<uint16_t>(pair);
}

// The same, four columns to a thread.
__global__ void __launch_bounds__(kThreads) SwiGluUnits(SwiGluLaunch args) {
  const int64_t row = blockIdx.y, col = 4 * (int64_t{blockIdx.x} * blockDim.x + threadIdx.x);
  if (col >= args.cols) return;
  const float4 gate =
      *reinterpret_cast<const float4*>(args.gate.data + row * args.gate.stride + col);
  const float4 up = *reinterpret_cast<const float4*>(args.up.data + row * args.up.stride + col);
  const float4 y = make_float4(Silu(gate.x) * up.x, Silu(gate.y) * up.y, Silu(gate.z) * up.z,
                               Silu(gate.w) * up.w);
  *reinterpret_cast<float4*>(args.out.data + row * args.out.stride + col) = y;
  if (args.rounded.data != nullptr) StoreRounded(args.rounded, row, col, y);
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

// Whether rows can be read four elements at a time.
bool InUnits(const DeviceRows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % sizeof(float4) == 0 && rows.stride % 4 == 0;
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
  const bool aligned = InUnits(args.x) && InUnits(args.out) &&
                       (args.groups == 1 || args.cols % 4 == 0) &&
                       reinterpret_cast<uintptr_t>(args.weight) % sizeof(float4) == 0;
  const auto threads = static_cast<unsigned>(
      std::clamp<int64_t>(((args.cols + 3) / 4 + 31) / 32 * 32, 32, kNormThreads));
  const dim3 grid(static_cast<unsigned>(args.rows), static_cast<unsigned>(args.groups));
  Launch(stream, {grid, threads, threads / 32 * sizeof(float), "RmsNorm"},
         aligned ? RmsNorm<true> : RmsNorm<false>, args);
}

void LaunchRopeAppend(Stream& stream, const RopeAppendLaunch& args) {
  if (args.rows == 0) return;
  const int heads = args.num_heads + args.kv.num_kv_heads;
  const dim3 grid(static_cast<unsigned>(args.rows),
                  static_cast<unsigned>((heads + kRopeWarps - 1) / kRopeWarps));
  const LaunchShape shape = {grid, kRopeWarps * 32, 0, "RopeAppend"};
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
  const bool units =
      args.cols % 4 == 0 && InUnits(args.gate) && InUnits(args.up) && InUnits(args.out);
  const int64_t items = units ? args.cols / 4 : args.cols;
  const unsigned threads = ThreadsFor(items);
  ForRowStretches(args.rows, items, threads, [&](int64_t row, dim3 grid) {
    SwiGluLaunch part = args;
    part.gate = From(args.gate, row);
    part.up = From(args.up, row);
    part.out = From(args.out, row);
    if (part.rounded.data != nullptr) part.rounded.data += 2 * row * part.rounded.stride;
    Launch(stream, {grid, threads, 0, "SwiGlu"}, units ? SwiGluUnits : SwiGlu, part);
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
