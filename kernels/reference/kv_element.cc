#include "kernels/reference/kv_element.h"

#include <cassert>
#include <cstring>

#include "kernels/cuda/kv_packing.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"

namespace refrain::kernels {
namespace {

int64_t RowIndex(const KvPoolView& kv, const KvElement& at) {
  return cuda::KvElementIndex(Traits(kv.dtype).block_bytes, kv.head_dim, kv.chunk_tokens, at.token,
                              at.dim);
}

int64_t KeyIndex(const KvPoolView& kv, const KvElement& at) {
  const int64_t c = kv.chunk_tokens;
  switch (kv.packing) {
    case KvPacking::kTransposedK:
      return at.dim * c + at.token;
    case KvPacking::kPairs:
      return (at.dim / 2 * c + at.token) * 2 + at.dim % 2;
    case KvPacking::kSwizzledRows:
      break;
  }
  return RowIndex(kv, at);
}

int64_t ValueIndex(const KvPoolView& kv, const KvElement& at) {
  const int64_t d = kv.head_dim;
  switch (kv.packing) {
    case KvPacking::kTransposedK:
      return at.token * d + at.dim;
    case KvPacking::kPairs:
      return (at.token / 2 * d + at.dim) * 2 + at.token % 2;
    case KvPacking::kSwizzledRows:
      break;
  }
  return RowIndex(kv, at);
}

void CheckInside(const KvPoolView& kv, const KvElement& at) {
  assert(at.chunk >= 0 && at.kv_head >= 0 && at.kv_head < kv.num_kv_heads);
  assert(at.token >= 0 && at.token < kv.chunk_tokens && at.dim >= 0 && at.dim < kv.head_dim);
}

float Load(DType dtype, const std::byte* base, int64_t index) {
  float value;
  DequantizeRow(dtype, base + index * Traits(dtype).block_bytes, 1, &value);
  return value;
}

void Store(DType dtype, std::byte* base, int64_t index, float value) {
  std::byte* const to = base + index * Traits(dtype).block_bytes;
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  if (dtype == DType::kF8E4M3) {
    *to = std::byte{F32ToE4m3(value)};
    return;
  }
  assert(dtype == DType::kF16 || dtype == DType::kBF16);
  const uint16_t bits = dtype == DType::kF16 ? F32ToF16(value) : F32ToBf16(value);
  std::memcpy(to, &bits, sizeof(bits));
}

}  // namespace

float LoadKey(const KvPoolView& kv, const KvElement& at) {
  CheckInside(kv, at);
  return Load(kv.dtype, kv.Keys(at.chunk, at.layer, at.kv_head), KeyIndex(kv, at));
}

float LoadValue(const KvPoolView& kv, const KvElement& at) {
  CheckInside(kv, at);
  return Load(kv.dtype, kv.Values(at.chunk, at.layer, at.kv_head), ValueIndex(kv, at));
}

void StoreKey(const KvPoolView& kv, const KvElement& at, float value) {
  CheckInside(kv, at);
  Store(kv.dtype, kv.Keys(at.chunk, at.layer, at.kv_head), KeyIndex(kv, at), value);
}

void StoreValue(const KvPoolView& kv, const KvElement& at, float value) {
  CheckInside(kv, at);
  Store(kv.dtype, kv.Values(at.chunk, at.layer, at.kv_head), ValueIndex(kv, at), value);
}

}  // namespace refrain::kernels
