#include "kernels/cpu/quantized_packing.h"

#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/reference/dequantize.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int kOperands = 8;  // of 4 consecutive k

uint8_t ByteAt(const std::byte* p) { return static_cast<uint8_t>(*p); }

// A block of 32 quants, none negative, in order of k.
struct Quants {
  alignas(4) uint8_t q[kBlockK];

  uint32_t Operand(int j) const {
    uint32_t four;
    std::memcpy(&four, q + 4 * j, sizeof(four));
    return four;
  }
  void SetOperand(int j, uint32_t four) { std::memcpy(q + 4 * j, &four, sizeof(four)); }
};

// Q4_0 to Q5_1: element i and element i + 16 share byte i of `nibbles`; bit i of `high` is the
// fifth bit of element i.
Quants Split16(const std::byte* nibbles, uint32_t high) {
  Quants out;
  for (int i = 0; i < 16; ++i) {
    out.q[i] = (ByteAt(nibbles + i) & 15) | (high >> i & 1) << 4;
    out.q[i + 16] = ByteAt(nibbles + i) >> 4 | (high >> (i + 16) & 1) << 4;
  }
  return out;
}

uint32_t LoadU32(const std::byte* p) {
  return ByteAt(p) | ByteAt(p + 1) << 8 | ByteAt(p + 2) << 16 |
         static_cast<uint32_t>(ByteAt(p + 3)) << 24;
}

// Q4_K, Q5_K: sub-blocks 2 g and 2 g + 1 are the low and high nibbles of bytes [32 g, 32 g + 32).
Quants SplitSuper(const std::byte* nibbles, const std::byte* high, int sub_block) {
  Quants out;
  const std::byte* bytes = nibbles + sub_block / 2 * 32;
  for (int i = 0; i < kBlockK; ++i) {
    out.q[i] = sub_block % 2 == 0 ? ByteAt(bytes + i) & 15 : ByteAt(bytes + i) >> 4;
    if (high != nullptr) out.q[i] |= (ByteAt(high + i) >> sub_block & 1) << 4;
  }
  return out;
}

// Q6_K: per 128 elements, 64 bytes of nibbles and 32 of upper bits; quarter h of the 128 has its
// nibbles in bytes 32 (h % 2) and on, low ones for h < 2, and bits 2 h of the upper bytes.
Quants SplitSix(const std::byte* low, const std::byte* high, int sub_block) {
  Quants out;
  const int quarter = sub_block % 4;
  const std::byte* bytes = low + sub_block / 4 * 64 + quarter % 2 * 32;
  const std::byte* upper = high + sub_block / 4 * 32;
  for (int i = 0; i < kBlockK; ++i) {
    const int nibble = quarter < 2 ? ByteAt(bytes + i) & 15 : ByteAt(bytes + i) >> 4;
    out.q[i] = nibble | (ByteAt(upper + i) >> (2 * quarter) & 3) << 4;
  }
  return out;
}

Quants LoadQuants(DType dtype, const std::byte* row, int64_t block) {
  const DTypeTraits& traits = Traits(dtype);
  const int64_t blocks_per_stored = traits.block_elements / kBlockK;
  const std::byte* stored = row + block / blocks_per_stored * traits.block_bytes;
  const int sub_block = static_cast<int>(block % blocks_per_stored);
  switch (dtype) {
    case DType::kQ8_0: {
      Quants out;
      for (int i = 0; i < kBlockK; ++i) out.q[i] = ByteAt(stored + 2 + i) ^ 0x80;
      return out;
    }
    case DType::kQ4_0:
      return Split16(stored + 2, 0);
    case DType::kQ4_1:
      return Split16(stored + 4, 0);
    case DType::kQ5_0:
      return Split16(stored + 6, LoadU32(stored + 2));
    case DType::kQ5_1:
      return Split16(stored + 8, LoadU32(stored + 4));
    case DType::kQ4_K:
      return SplitSuper(stored + 16, nullptr, sub_block);
    case DType::kQ5_K:
      return SplitSuper(stored + 48, stored + 16, sub_block);
    default:
      assert(dtype == DType::kQ6_K);
      return SplitSix(stored, stored + 128, sub_block);
  }
}

void StoreQuants(int bits, const Quants& quants, int lane, uint8_t* block) {
  const auto store = [&](int vector, uint32_t four) {
    std::memcpy(block + 64 * vector + 4 * lane, &four, sizeof(four));
  };
  if (bits == 8) {
    for (int j = 0; j < kOperands; ++j) store(j, quants.Operand(j));
    return;
  }
  uint32_t high[2] = {0, 0};
  for (int j = 0; j < kOperands; ++j) {
    const uint32_t upper = quants.Operand(j) >> 4 & 0x0f0f0f0f;
    high[bits == 6 ? j / 4 : 0] |= upper << (bits == 6 ? j % 4 * 2 : j);
    if (j % 2 == 1) {
      const uint32_t low = 0x0f0f0f0f;
      store(j / 2, (quants.Operand(j - 1) & low) | (quants.Operand(j) & low) << 4);
    }
  }
  if (bits >= 5) store(4, high[0]);
  if (bits == 6) store(5, high[1]);
}

Quants FetchQuants(int bits, const uint8_t* block, int lane) {
  const auto fetch = [&](int vector) {
    uint32_t four;
    std::memcpy(&four, block + 64 * vector + 4 * lane, sizeof(four));
    return four;
  };
  Quants out;
  for (int j = 0; j < kOperands; ++j) {
    if (bits == 8) {
      out.SetOperand(j, fetch(j));
      continue;
    }
    uint32_t four = fetch(j / 2) >> (j % 2 * 4) & 0x0f0f0f0f;
    if (bits == 5) four |= (fetch(4) >> j & 0x01010101) << 4;
    if (bits == 6) four |= (fetch(4 + j / 4) >> (j % 4 * 2) & 0x03030303) << 4;
    out.SetOperand(j, four);
  }
  return out;
}

// The 6-bit scale and minimum of a sub-block of Q4_K and Q5_K, spread over 12 bytes.
void LoadSixBitPair(const std::byte* scales, int sub_block, uint8_t& scale, uint8_t& min) {
  if (sub_block < 4) {
    scale = ByteAt(scales + sub_block) & 63;
    min = ByteAt(scales + sub_block + 4) & 63;
    return;
  }
  const uint8_t low = ByteAt(scales + sub_block + 4);
  scale = (low & 15) | ByteAt(scales + sub_block - 4) >> 6 << 4;
  min = low >> 4 | ByteAt(scales + sub_block) >> 6 << 4;
}

void StoreHalf(uint8_t* sixteen, int lane, const std::byte* half, bool negate = false) {
  sixteen[2 * lane] = ByteAt(half);
  sixteen[2 * lane + 1] = ByteAt(half + 1) ^ (negate ? 0x80 : 0);
}

float FetchHalf(const uint8_t* sixteen, int lane) {
  return F16ToF32(static_cast<uint16_t>(sixteen[2 * lane] | sixteen[2 * lane + 1] << 8));
}

// The scales of one block of 256, at `to` of the tile.
void StoreSuperScales(DType dtype, const std::byte* stored, int lane, uint8_t* to) {
  if (dtype == DType::kQ6_K) {
    StoreHalf(to, lane, stored + 208);
    for (int half = 0; half < 16; ++half) to[32 + 16 * half + lane] = ByteAt(stored + 192 + half);
    return;
  }
  StoreHalf(to, lane, stored);
  StoreHalf(to + 32, lane, stored + 2, /*negate=*/true);
  for (int sub_block = 0; sub_block < kBlocksPerSuperBlock; ++sub_block) {
    uint8_t* pair = to + 64 + 32 * sub_block + lane;
    LoadSixBitPair(stored + 4, sub_block, pair[0], pair[16]);
  }
}

void StoreScales(DType dtype, const std::byte* row, int64_t blocks, int lane, uint8_t* scales) {
  const DTypeTraits& traits = Traits(dtype);
  const QuantizedFormat format = FormatOf(dtype);
  if (traits.block_elements != kBlockK) {
    const int bytes = ScaleBytesPerSuperBlock(format.scale_kind);
    for (int64_t i = 0; i < blocks / kBlocksPerSuperBlock; ++i) {
      StoreSuperScales(dtype, row + i * traits.block_bytes, lane, scales + i * bytes);
    }
    return;
  }
  const bool has_min = format.scale_kind == ScaleKind::kScaleMin;
  for (int64_t block = 0; block < blocks; ++block) {
    const std::byte* stored = row + block * traits.block_bytes;
    uint8_t* to = scales + block * (has_min ? 64 : 32);
    StoreHalf(to, lane, stored);
    if (has_min) StoreHalf(to + 32, lane, stored + 2);
  }
}

// Scale of each half of a block, and its minimum.
struct FloatScales {
  float scale[2];
  float min;
};

FloatScales FetchScales(ScaleKind kind, const uint8_t* scales, int64_t block, int lane) {
  if (kind == ScaleKind::kScale) {
    const float d = FetchHalf(scales + block * 32, lane);
    return {{d, d}, 0.0f};
  }
  if (kind == ScaleKind::kScaleMin) {
    const float d = FetchHalf(scales + block * 64, lane);
    return {{d, d}, FetchHalf(scales + block * 64 + 32, lane)};
  }
  const uint8_t* super = scales + block / kBlocksPerSuperBlock * ScaleBytesPerSuperBlock(kind);
  const int64_t pair = block % kBlocksPerSuperBlock * 32 + lane;
  const float d = FetchHalf(super, lane);
  if (kind == ScaleKind::kSuperMin) {
    const float scale = d * super[64 + pair];
    return {{scale, scale}, FetchHalf(super + 32, lane) * super[64 + pair + 16]};
  }
  return {
      {d * static_cast<int8_t>(super[32 + pair]), d * static_cast<int8_t>(super[32 + pair + 16])},
      0.0f};
}

bool HasMin(const QuantizedFormat& format) {
  return format.scale_kind == ScaleKind::kScaleMin || format.scale_kind == ScaleKind::kSuperMin;
}

// One block of a row of the tile at `tile`, as floats, and its scales.
FloatScales UnpackBlock(const QuantizedFormat& format, const uint8_t* tile, int64_t blocks,
                        int64_t block, int lane, float* out) {
  const uint8_t* quants = tile + ScaleBytes(format, blocks);
  const FloatScales s = FetchScales(format.scale_kind, tile, block, lane);
  const Quants q = FetchQuants(format.bits, quants + block * QuantBytesPerBlock(format.bits), lane);
  const bool has_min = HasMin(format);
  for (int i = 0; i < kBlockK; ++i) {
    const float product = s.scale[i / 16] * static_cast<float>(q.q[i] - format.zero_point);
    // Adding an absent minimum would turn -0 into 0.
    out[i] = has_min ? product + s.min : product;
  }
  return s;
}

}  // namespace

QuantizedFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return {8, ScaleKind::kScale, 128};
    case DType::kQ4_0:
      return {4, ScaleKind::kScale, 8};
    case DType::kQ4_1:
      return {4, ScaleKind::kScaleMin, 0};
    case DType::kQ5_0:
      return {5, ScaleKind::kScale, 16};
    case DType::kQ5_1:
      return {5, ScaleKind::kScaleMin, 0};
    case DType::kQ4_K:
      return {4, ScaleKind::kSuperMin, 0};
    case DType::kQ5_K:
      return {5, ScaleKind::kSuperMin, 0};
    case DType::kQ6_K:
      return {6, ScaleKind::kSuperScale, 32};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
      break;
  }
  assert(false && "not a quantised type");
  return {};
}

int64_t ScaleBytes(const QuantizedFormat& format, int64_t blocks) {
  const int64_t per_super_block = ScaleBytesPerSuperBlock(format.scale_kind);
  // Where scales are per block, a super-block is only eight of them.
  const bool super =
      format.scale_kind == ScaleKind::kSuperMin || format.scale_kind == ScaleKind::kSuperScale;
  assert(!super || blocks % kBlocksPerSuperBlock == 0);
  return (blocks * per_super_block / kBlocksPerSuperBlock + 63) / 64 * 64;
}

int64_t TileBytes(const QuantizedFormat& format, int64_t blocks) {
  return ScaleBytes(format, blocks) + blocks * QuantBytesPerBlock(format.bits);
}

void PackRow(DType dtype, const std::byte* row, int64_t blocks, int lane, uint8_t* tile) {
  const QuantizedFormat format = FormatOf(dtype);
  StoreScales(dtype, row, blocks, lane, tile);
  uint8_t* quants = tile + ScaleBytes(format, blocks);
  for (int64_t block = 0; block < blocks; ++block) {
    StoreQuants(format.bits, LoadQuants(dtype, row, block), lane,
                quants + block * QuantBytesPerBlock(format.bits));
  }
}

void UnpackRow(DType dtype, const uint8_t* tile, int64_t blocks, int lane, float* out) {
  const QuantizedFormat format = FormatOf(dtype);
  for (int64_t block = 0; block < blocks; ++block) {
    UnpackBlock(format, tile, blocks, block, lane, out + block * kBlockK);
  }
}

RowNorms NormsOfRow(DType dtype, const uint8_t* tile, int64_t blocks, int lane) {
  const QuantizedFormat format = FormatOf(dtype);
  const int largest_quant = (1 << format.bits) - 1;
  double squares = 0, squares_of_terms = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    float w[kBlockK];
    const FloatScales s = UnpackBlock(format, tile, blocks, block, lane, w);
    float sums[4] = {};
    for (int i = 0; i < kBlockK; ++i) sums[i % 4] += w[i] * w[i];
    squares += static_cast<double>(sums[0]) + sums[1] + sums[2] + sums[3];
    if (!HasMin(format)) continue;
    const double element = std::abs(double{s.scale[0]}) * largest_quant + std::abs(double{s.min});
    squares_of_terms += kBlockK * element * element;
  }
  const double length = std::sqrt(squares) * (1 + 1e-5);  // squares were summed in floats
  return {length, HasMin(format) ? std::sqrt(squares_of_terms) : length};
}

}  // namespace refrain::kernels::cpu
