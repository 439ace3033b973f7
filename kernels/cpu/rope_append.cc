#include "kernels/cpu/rope_append.h"

#include <emmintrin.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/elementwise_kernels.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int64_t kRowsOnCallingThread = 4;
constexpr int kMaxHeadDim = 256;
// Rows whose tokens follow each other in a chunk are written together, this many, if the first is
// at a multiple of it: what they have of K lies beside each other, and so do pairs of values.
constexpr int kTogether = 4;

// A row of qkv, or kTogether, one behind the other.
struct RowGroup {
  int64_t first;
  int rows;
};

// n units of kBytes of each of kTogether tokens, one token behind the other, as columns:
// unit i of all of them goes to `to` + i * stride bytes.
template <int kBytes>
void WriteColumns(const std::byte* from, int n, std::byte* to, int64_t stride) {
  static_assert(kBytes == 1 || kBytes == 2 || kBytes == 4);
  const int64_t token_bytes = int64_t{n} * kBytes;
  int i = 0;
  if constexpr (kBytes == 2) {
    for (; i + 8 <= n; i += 8) {
      __m128i rows[kTogether];
      for (int t = 0; t < kTogether; ++t) {
        rows[t] =
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + t * token_bytes + i * kBytes));
      }
      const __m128i low[2] = {_mm_unpacklo_epi16(rows[0], rows[1]),
                              _mm_unpacklo_epi16(rows[2], rows[3])};
      const __m128i high[2] = {_mm_unpackhi_epi16(rows[0], rows[1]),
                               _mm_unpackhi_epi16(rows[2], rows[3])};
      const __m128i columns[4] = {
          _mm_unpacklo_epi32(low[0], low[1]), _mm_unpackhi_epi32(low[0], low[1]),
          _mm_unpacklo_epi32(high[0], high[1]), _mm_unpackhi_epi32(high[0], high[1])};
      for (int j = 0; j < 8; j += 2) {
        const __m128i pair = columns[j / 2];
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to + (i + j) * stride), pair);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to + (i + j + 1) * stride),
                         _mm_unpackhi_epi64(pair, pair));
      }
    }
  }
  if constexpr (kBytes == 4) {
    for (; i + 4 <= n; i += 4) {
      __m128 rows[kTogether];
      for (int t = 0; t < kTogether; ++t) {
        rows[t] = _mm_loadu_ps(reinterpret_cast<const float*>(from + t * token_bytes + i * kBytes));
      }
      _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
      for (int j = 0; j < 4; ++j) {
        _mm_storeu_ps(reinterpret_cast<float*>(to + (i + j) * stride), rows[j]);
      }
    }
  }
  for (; i < n; ++i) {
    for (int t = 0; t < kTogether; ++t) {
      std::memcpy(to + i * stride + t * kBytes, from + t * token_bytes + i * kBytes, kBytes);
    }
  }
}

// Keys of one head of `tokens` tokens into K [n][chunk_tokens] of units of kBytes, from `token` on.
template <int kBytes>
void WriteKeys(const KvPoolView& kv, int token, int tokens, const std::byte* keys, int n,
               std::byte* k_head) {
  std::byte* const to = k_head + int64_t{token} * kBytes;
  const int64_t stride = int64_t{kv.chunk_tokens} * kBytes;
  if (tokens == kTogether) return WriteColumns<kBytes>(keys, n, to, stride);
  for (int i = 0; i < n; ++i) std::memcpy(to + i * stride, keys + i * kBytes, kBytes);
}

// Values of one head into V [c/2][d][2].
void WriteValuePairs(int token, int tokens, const uint16_t* values, int d, uint16_t* v_head) {
  if (tokens == 1) {
    uint16_t* const row = v_head + int64_t{token / 2} * d * 2 + token % 2;
    for (int i = 0; i < d; ++i) row[2 * i] = values[i];
    return;
  }
  for (int t = 0; t < kTogether; t += 2) {
    const uint16_t* const from = values + t * d;
    uint16_t* const row = v_head + int64_t{token + t} * d;
    for (int i = 0; i < d; ++i) {
      row[2 * i] = from[i];
      row[2 * i + 1] = from[d + i];
    }
  }
}

// Whether one of n elements is no finite number: has all bits of `exponent` set.
template <typename T>
bool AnyNotFinite(const T* elements, int n, T exponent) {
  // In T and by sixteens, as g++ takes them in vectors.
  constexpr int kBlock = 16;
  T any = 0;
  int i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    T in_block = 0;
    for (int j = 0; j < kBlock; ++j) {
      in_block |= static_cast<T>((elements[i + j] & exponent) == exponent);
    }
    any |= in_block;
  }
  for (; i < n; ++i) any |= static_cast<T>((elements[i] & exponent) == exponent);
  return any != 0;
}

// One KV head of the tokens from `token` on, rounded to the pool's elements by `round`, which are T
// as bits. Those with all bits of `exponent` set are no finite numbers.
template <typename T, typename Round>
void WriteHead(const RopeAppendArgs& args, const RowGroup& group, int h, T exponent,
               const Round& round) {
  const KvPoolView& kv = args.kv;
  const int d = kv.head_dim;
  const KvSlotRef to = args.destinations[group.first];
  alignas(64) T keys[kTogether * kMaxHeadDim];
  alignas(64) T values[kTogether * kMaxHeadDim];
  for (int t = 0; t < group.rows; ++t) {
    const float* const k = args.qkv.F32Row(group.first + t) + int64_t{args.num_heads + h} * d;
    round(k, keys + t * d, d);
    round(k + int64_t{kv.num_kv_heads} * d, values + t * d, d);
    if (AnyNotFinite(keys + t * d, d, exponent) || AnyNotFinite(values + t * d, d, exponent))
        [[unlikely]] {
      std::fill_n(keys + t * d, d, static_cast<T>(exponent | exponent >> 1));  // NaN
      std::fill_n(values + t * d, d, T{0});
    }
  }
  const auto* const key_bytes = reinterpret_cast<const std::byte*>(keys);
  std::byte* const k_head = kv.Keys(to.chunk, args.layer, h);
  std::byte* const v_head = kv.Values(to.chunk, args.layer, h);
  if (kv.dtype == DType::kBF16) {
    WriteKeys<4>(kv, to.offset, group.rows, key_bytes, d / 2, k_head);  // [d/2][c][2]
    if constexpr (sizeof(T) == 2) {
      WriteValuePairs(to.offset, group.rows, values, d, reinterpret_cast<T*>(v_head));
    }
    return;
  }
  WriteKeys<sizeof(T)>(kv, to.offset, group.rows, key_bytes, d, k_head);
  std::memcpy(v_head + int64_t{to.offset} * d * sizeof(T), values, group.rows * d * sizeof(T));
}

void WriteHead(const ElementwiseKernels& kernels, const RopeAppendArgs& args, const RowGroup& group,
               int h) {
  switch (args.kv.dtype) {
    case DType::kF32:
      return WriteHead<uint32_t>(args, group, h, 0x7f800000,
                                 [](const float* from, uint32_t* to, int64_t n) {
                                   std::memcpy(to, from, n * sizeof(float));
                                 });
    case DType::kF16:
      return WriteHead<uint16_t>(args, group, h, 0x7c00, kernels.to_f16);
    case DType::kF8E4M3:  // NaN alone: E4M3 has no infinity
      return WriteHead<uint8_t>(args, group, h, 0x7f, kernels.to_e4m3);
    default:
      assert(args.kv.dtype == DType::kBF16);
      return WriteHead<uint16_t>(args, group, h, 0x7f80, kernels.to_bf16);
  }
}

// The rows from `row` on that are appended together, none of them `end` or behind it.
RowGroup GroupAt(const RopeAppendArgs& args, int64_t row, int64_t end) {
  const KvSlotRef first = args.destinations[row];
  if (first.chunk < 0 || first.offset % kTogether != 0 || row + kTogether > end) return {row, 1};
  for (int t = 1; t < kTogether; ++t) {
    const KvSlotRef& next = args.destinations[row + t];
    if (next.chunk != first.chunk || next.offset != first.offset + t) return {row, 1};
  }
  return {row, kTogether};
}

void AppendRows(const ElementwiseKernels& kernels, const RopeAppendArgs& args,
                const RowGroup& group) {
  const int64_t half = args.table.rope_dim / 2;
  for (int64_t row = group.first; row < group.first + group.rows; ++row) {
    const int32_t position = args.positions[row];
    assert(position >= 0 && position < args.table.max_positions);
    kernels.rotate(args.qkv.F32Row(row), args.num_heads + args.kv.num_kv_heads, args.kv.head_dim,
                   args.table.cos + position * half, args.table.sin + position * half, half);
  }
  const KvSlotRef to = args.destinations[group.first];
  if (to.chunk < 0) return;
  assert(to.offset >= 0 && to.offset + group.rows <= args.kv.chunk_tokens);
  for (int h = 0; h < args.kv.num_kv_heads; ++h) WriteHead(kernels, args, group, h);
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
    for (int64_t row = begin; row < end;) {
      const RowGroup group = GroupAt(args, row, end);
      AppendRows(kernels, args, group);
      row += group.rows;
    }
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
