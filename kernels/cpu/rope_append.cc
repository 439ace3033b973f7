#include "kernels/cpu/rope_append.h"

#include <cassert>
#include <cstring>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/elementwise_kernels.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int64_t kRowsOnCallingThread = 4;
constexpr int kMaxHeadDim = 256;

// One head's key and value of one token into a chunk of elements T, K [d][c], V [c][d].
template <typename T>
void WriteTransposedK(const KvPoolView& kv, int token, const T* key, const T* value, T* k_head,
                      T* v_head) {
  for (int i = 0; i < kv.head_dim; ++i) k_head[i * kv.chunk_tokens + token] = key[i];
  std::memcpy(v_head + static_cast<int64_t>(token) * kv.head_dim, value, kv.head_dim * sizeof(T));
}

// The same for K [d/2][c][2], V [c/2][d][2].
void WritePairs(const KvPoolView& kv, int token, const uint16_t* key, const uint16_t* value,
                uint16_t* k_head, uint16_t* v_head) {
  for (int i = 0; i < kv.head_dim; i += 2) {
    uint16_t* const pair = k_head + (i / 2 * kv.chunk_tokens + token) * 2;
    pair[0] = key[i];
    pair[1] = key[i + 1];
  }
  uint16_t* const row = v_head + static_cast<int64_t>(token / 2) * kv.head_dim * 2 + token % 2;
  for (int i = 0; i < kv.head_dim; ++i) row[2 * i] = value[i];
}

void WriteHead(const ElementwiseKernels& kernels, const KvPoolView& kv, int token, const float* key,
               const float* value, std::byte* k_head, std::byte* v_head) {
  if (kv.dtype == DType::kF32) {
    WriteTransposedK(kv, token, key, value, reinterpret_cast<float*>(k_head),
                     reinterpret_cast<float*>(v_head));
    return;
  }
  if (kv.dtype == DType::kF8E4M3) {
    alignas(64) uint8_t key8[kMaxHeadDim];
    alignas(64) uint8_t value8[kMaxHeadDim];
    kernels.to_e4m3(key, key8, kv.head_dim);
    kernels.to_e4m3(value, value8, kv.head_dim);
    WriteTransposedK(kv, token, key8, value8, reinterpret_cast<uint8_t*>(k_head),
                     reinterpret_cast<uint8_t*>(v_head));
    return;
  }
  alignas(64) uint16_t key16[kMaxHeadDim];
  alignas(64) uint16_t value16[kMaxHeadDim];
  const auto round = kv.dtype == DType::kF16 ? kernels.to_f16 : kernels.to_bf16;
  round(key, key16, kv.head_dim);
  round(value, value16, kv.head_dim);
  auto* const k16 = reinterpret_cast<uint16_t*>(k_head);
  auto* const v16 = reinterpret_cast<uint16_t*>(v_head);
  if (kv.dtype == DType::kF16) {
    WriteTransposedK(kv, token, key16, value16, k16, v16);
  } else {
    WritePairs(kv, token, key16, value16, k16, v16);
  }
}

void AppendRow(const ElementwiseKernels& kernels, const RopeAppendArgs& args, int64_t row) {
  const int d = args.kv.head_dim;
  const int kv_heads = args.kv.num_kv_heads;
  const int64_t half = args.table.rope_dim / 2;
  const int32_t position = args.positions[row];
  assert(position >= 0 && position < args.table.max_positions);
  const float* const cos = args.table.cos + position * half;
  const float* const sin = args.table.sin + position * half;
  float* const qkv = args.qkv.F32Row(row);
  for (int h = 0; h < args.num_heads + kv_heads; ++h) kernels.rotate(qkv + h * d, cos, sin, half);

  const float* const k = qkv + static_cast<int64_t>(args.num_heads) * d;
  const float* const v = k + static_cast<int64_t>(kv_heads) * d;
  const KvSlotRef to = args.destinations[row];
  if (to.chunk < 0) return;
  assert(to.offset >= 0 && to.offset < args.kv.chunk_tokens);
  for (int h = 0; h < kv_heads; ++h) {
    WriteHead(kernels, args.kv, to.offset, k + h * d, v + h * d,
              args.kv.Keys(to.chunk, args.layer, h), args.kv.Values(to.chunk, args.layer, h));
  }
}

}  // namespace

void RopeAppend(ThreadPool& pool, Isa isa, const RopeAppendArgs& args) {
  const int64_t rows = args.qkv.rows;
  assert(args.kv.head_dim % 2 == 0 && args.kv.head_dim <= kMaxHeadDim);
  assert(args.qkv.cols ==
         static_cast<int64_t>(args.num_heads + 2 * args.kv.num_kv_heads) * args.kv.head_dim);
  assert(std::ssize(args.positions) == rows && std::ssize(args.destinations) == rows);
  assert(args.table.rope_dim % 2 == 0 && args.table.rope_dim <= args.kv.head_dim);
  const ElementwiseKernels& kernels = ElementwiseFor(isa);
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) AppendRow(kernels, args, row);
  };
  if (rows <= kRowsOnCallingThread) {
    range(0, rows);
    return;
  }
  // Neighbouring tokens of a chunk share cache lines of K, so a thread takes many in a row.
  const int64_t grain = rows / (2 * pool.threads());
  pool.ParallelForStretches(rows, grain < 1 ? 1 : grain > 64 ? 64 : grain, range);
}

}  // namespace refrain::kernels::cpu
