// The loops of quantized_kernels.h over a vector type V, for inclusion by the one file of each
// instruction-set level. V is a struct in that file's unnamed namespace, so that every function
// here, being a template over V, is private to the file that was compiled for V's instructions.
// For the same reason nothing of the standard library is called.
//
// V has kLanes 32-bit lanes (a tile of 16 rows is kParts = 16 / kLanes of them), F and I for
// floats and bytes or integers, and
//   kShifted    8-bit dot products take any u8 operand: quants of 4 to 6 bits are shifted to the
//               top of their byte, which makes every zero point 128 and the offset of the sum a
//               value to start from; else they stay small, so that sums of 16 bits cannot overflow
//   DotPair<bits>(acc, w0, w1, a0, a1): acc + the dot products of 4 bytes per lane of both pairs
//   kGemmTiles, kGemmRows: the block of outputs kept in registers where there are many rows.

#ifndef REFRAIN_KERNELS_CPU_QUANTIZED_KERNELS_INL_H_
#define REFRAIN_KERNELS_CPU_QUANTIZED_KERNELS_INL_H_

#include <cstdint>

#include "kernels/cpu/quantized_kernels.h"

namespace refrain::kernels::cpu {

inline constexpr int kTile = 16;
inline constexpr int kOperands = 8;  // per block: 32 k, 4 per operand
// Up to this many rows, weights are unpacked into registers and used at once.
inline constexpr int kMaxDirectRows = 6;
// Most blocks along k that are unpacked at a time where there are more rows: 23 KiB for two tiles,
// which stay in a first-level cache of 32 KiB while all rows pass by. A k of 576 is one stretch.
inline constexpr int kUnpackBlocks = 18;
// How far ahead of its use a line of weights is asked for. The hardware's own prefetcher stops at
// 4 KiB borders.
inline constexpr int kPrefetchBytes = 4096;

template <int kBitsValue, ScaleKind kKindValue>
struct Format {
  static constexpr int kBits = kBitsValue;
  static constexpr ScaleKind kKind = kKindValue;
  static constexpr bool kHasMin = kKind == ScaleKind::kScaleMin || kKind == ScaleKind::kSuperMin;
  static constexpr bool kHalves = kKind == ScaleKind::kSuperScale;  // a scale per 16
  static constexpr int kSums = kHalves ? 2 : 1;                     // integer sums per block
  static constexpr int kQuantBytes = QuantBytesPerBlock(kBits);
};

// Quants as operands: shifted to the top of the byte if their zero point is to be 128.
template <class V, class T>
inline constexpr bool kTopBits = V::kShifted && !T::kHasMin;

// Scales of one block for the lanes of one part.
template <class V>
struct BlockScales {
  typename V::F scale[2];  // [1] where a block has two
  typename V::F min;
};

template <class V, class T>
inline BlockScales<V> LoadScales(const uint8_t* scales, int64_t block, int part) {
  constexpr int kHalfBytes = 2 * V::kLanes;
  BlockScales<V> s;
  if constexpr (T::kKind == ScaleKind::kScale) {
    // The sum is 2^(8 - bits) times too large (see kShifted); exact.
    constexpr float kUnshift = 1.0f / (1 << (8 - T::kBits));
    s.scale[0] = V::LoadF16(scales + block * 32 + part * kHalfBytes);
    if constexpr (T::kBits != 8) s.scale[0] = V::Mul(s.scale[0], V::SetF(kUnshift));
  } else if constexpr (T::kKind == ScaleKind::kScaleMin) {
    const uint8_t* p = scales + block * 64 + part * kHalfBytes;
    s.scale[0] = V::LoadF16(p);
    s.min = V::LoadF16(p + 32);
  } else {
    constexpr int kSuperBytes = ScaleBytesPerSuperBlock(T::kKind);
    const uint8_t* super = scales + block / kBlocksPerSuperBlock * kSuperBytes;
    const typename V::F d = V::LoadF16(super + part * kHalfBytes);
    const int64_t in_super = block % kBlocksPerSuperBlock * 32 + part * V::kLanes;
    if constexpr (T::kKind == ScaleKind::kSuperMin) {
      const uint8_t* p = super + 64 + in_super;
      s.scale[0] = V::Mul(d, V::LoadU8(p));
      s.min = V::Mul(V::LoadF16(super + 32 + part * kHalfBytes), V::LoadU8(p + 16));
    } else {
      const uint8_t* p = super + 32 + in_super;
      const typename V::F unshifted = V::Mul(d, V::SetF(0.25f));
      s.scale[0] = V::Mul(unshifted, V::LoadI8(p));
      s.scale[1] = V::Mul(unshifted, V::LoadI8(p + 16));
    }
  }
  return s;
}

// Bits `kFrom` and up of every byte of x, moved to bit `kTo` and up; neighbours come along.
template <class V, int kFrom, int kTo>
inline typename V::I MoveBits(typename V::I x) {
  if constexpr (kFrom < kTo) {
    return V::template ShiftLeft16<kTo - kFrom>(x);
  } else if constexpr (kFrom > kTo) {
    return V::template ShiftRight16<kFrom - kTo>(x);
  } else {
    return x;
  }
}

// Operand j of a block whose quants begin at `q` (already moved to the part's bytes).
template <class V, class T, int j>
inline typename V::I Operand(const uint8_t* q) {
  if constexpr (T::kBits == 8) {
    const typename V::I x = V::Load(q + 64 * j);
    return V::kShifted ? x : V::Xor(x, V::Set8(0x80));
  } else {
    constexpr int kUp = kTopBits<V, T> ? 8 - T::kBits : 0;
    const typename V::I low =
        V::And(MoveBits<V, j % 2 * 4, kUp>(V::Load(q + 64 * (j / 2))), V::Set8(0x0f << kUp));
    if constexpr (T::kBits == 4) {
      return low;
    } else if constexpr (T::kBits == 5) {
      return V::Or(low,
                   V::And(MoveBits<V, j, 4 + kUp>(V::Load(q + 256)), V::Set8(0x10 << kUp & 0xff)));
    } else {
      return V::Or(low, V::And(MoveBits<V, 2 * (j % 4), 4 + kUp>(V::Load(q + 256 + 64 * (j / 4))),
                               V::Set8(0x30 << kUp & 0xff)));
    }
  }
}

template <class V, class T>
inline void UnpackBlock(const uint8_t* q, typename V::I w[kOperands]) {
  w[0] = Operand<V, T, 0>(q);
  w[1] = Operand<V, T, 1>(q);
  w[2] = Operand<V, T, 2>(q);
  w[3] = Operand<V, T, 3>(q);
  w[4] = Operand<V, T, 4>(q);
  w[5] = Operand<V, T, 5>(q);
  w[6] = Operand<V, T, 6>(q);
  w[7] = Operand<V, T, 7>(q);
}

// The value an integer sum starts from.
template <class V, class T>
inline typename V::I SumBegin(const int32_t* offset) {
  return V::kShifted && !T::kHasMin ? V::Broadcast32(offset) : V::Zero();
}

// The integer sum as a float: sum over k of 2^(8 - bits) (q - zero) a, or of q a with a minimum.
template <class V, class T>
inline typename V::F SumEnd(typename V::I sum, const int32_t* offset) {
  if constexpr (!V::kShifted && !T::kHasMin && T::kBits != 8) {
    sum = V::Add32(V::template ShiftLeft32<8 - T::kBits>(sum), V::Broadcast32(offset));
  }
  return V::ToFloat(sum);
}

// One row of activations at one block.
struct RowBlock {
  const int8_t* q;
  const float* scale;
  const float* scaled_sum;
  const int32_t* offset;  // one, or two where a block has two scales
};

template <class V, class T>
inline RowBlock At(const Int8Rows& x, int64_t row, int64_t block) {
  const int64_t i = row * x.blocks + block;
  return {x.q + i * kBlockK, x.scales + i, x.scaled_sums + i,
          T::kHalves ? x.half_offsets + 2 * i : x.offsets + i};
}

// sum + the product of one block of one row: the arithmetic that every kernel shares.
template <class V, class T>
inline typename V::F AddScaled(typename V::F total, const typename V::F dot[2],
                               const BlockScales<V>& s, const RowBlock& x) {
  const typename V::F scale = V::BroadcastF(x.scale);
  total = V::Fma(dot[0], V::Mul(s.scale[0], scale), total);
  if constexpr (T::kHalves) total = V::Fma(dot[1], V::Mul(s.scale[1], scale), total);
  if constexpr (T::kHasMin) total = V::Fma(s.min, V::BroadcastF(x.scaled_sum), total);
  return total;
}

// `kChains`: one sum is a chain of eight dependent instructions; a second one (half the length, one
// addition more) pays where no other row fills the gaps.
template <class V, class T, int kChains>
inline typename V::F MultiplyBlock(const typename V::I w[kOperands], const BlockScales<V>& s,
                                   const RowBlock& x, typename V::F total) {
  const auto a = [&](int j) { return V::Broadcast32(x.q + 4 * j); };
  typename V::F dot[2];
  typename V::I first = SumBegin<V, T>(x.offset);
  first = V::template DotPair<T::kBits>(first, w[0], w[1], a(0), a(1));
  first = V::template DotPair<T::kBits>(first, w[2], w[3], a(2), a(3));
  if constexpr (T::kHalves) {
    typename V::I second = SumBegin<V, T>(x.offset + 1);
    second = V::template DotPair<T::kBits>(second, w[4], w[5], a(4), a(5));
    second = V::template DotPair<T::kBits>(second, w[6], w[7], a(6), a(7));
    dot[1] = SumEnd<V, T>(second, x.offset + 1);
  } else if constexpr (kChains == 1) {
    first = V::template DotPair<T::kBits>(first, w[4], w[5], a(4), a(5));
    first = V::template DotPair<T::kBits>(first, w[6], w[7], a(6), a(7));
  } else {
    typename V::I second = V::Zero();
    second = V::template DotPair<T::kBits>(second, w[4], w[5], a(4), a(5));
    second = V::template DotPair<T::kBits>(second, w[6], w[7], a(6), a(7));
    first = V::Add32(first, second);
  }
  dot[0] = SumEnd<V, T>(first, x.offset);
  return AddScaled<V, T>(total, dot, s, x);
}

template <class V, int kTiles>
inline int ColumnsIn(int64_t n, int64_t tile) {
  const int64_t left = n - tile * kTile;
  return left < kTiles * kTile ? static_cast<int>(left) : kTiles * kTile;
}

// Few rows: every byte of the weight is read once, unpacked in registers and used for all rows.
template <class V, class T, int kRows>
void MultiplyDirect(const QuantizedPanels& w, const Int8Rows& x, const ProductRange& range,
                    int64_t row_begin) {
  constexpr int kParts = kTile / V::kLanes;
  for (int64_t tile = range.tile_begin; tile < range.tile_end; ++tile) {
    const uint8_t* scales = w.data + tile * w.tile_bytes;
    const uint8_t* quants = scales + w.scale_bytes;
    const int columns = ColumnsIn<V, 1>(w.n, tile);
    float* out = range.out + row_begin * range.out_stride + tile * kTile;
    for (int part = 0; part < kParts; ++part) {
      const int lanes = columns - part * V::kLanes;
      typename V::F total[kRows];
      for (int r = 0; r < kRows; ++r) {
        total[r] = range.accumulate ? V::LoadN(out + r * range.out_stride + part * V::kLanes, lanes)
                                    : V::SetF(0.0f);
      }
      for (int64_t block = 0; block < w.blocks; ++block) {
        const uint8_t* q = quants + block * T::kQuantBytes + part * V::kLanes * 4;
        if (part == 0) {
          for (int line = 0; line < T::kQuantBytes; line += 64) {
            V::Prefetch(q + kPrefetchBytes + line);
          }
        }
        typename V::I operands[kOperands];
        UnpackBlock<V, T>(q, operands);
        const BlockScales<V> s = LoadScales<V, T>(scales, block, part);
        for (int r = 0; r < kRows; ++r) {
          total[r] = MultiplyBlock < V, T,
          kRows <= 2 ? 2 : 1 > (operands, s, At<V, T>(x, row_begin + r, block), total[r]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        V::StoreN(out + r * range.out_stride + part * V::kLanes, total[r], lanes);
      }
    }
  }
}

// Up to kUnpackBlocks blocks of kTiles tiles as operands and float scales.
template <class V, class T, int kTiles>
struct Unpacked {
  alignas(64) uint8_t operands[kUnpackBlocks][kTiles][kOperands][64];
  alignas(64) float scales[kUnpackBlocks][kTiles][T::kSums][kTile];
  alignas(64) float mins[kUnpackBlocks][kTiles][T::kHasMin ? kTile : 1];
};

template <class V, class T, int kTiles>
inline void Unpack(const QuantizedPanels& w, int64_t tile_begin, int64_t block_begin, int blocks,
                   Unpacked<V, T, kTiles>& to) {
  constexpr int kParts = kTile / V::kLanes;
  for (int t = 0; t < kTiles; ++t) {
    const uint8_t* scales = w.data + (tile_begin + t) * w.tile_bytes;
    const uint8_t* quants = scales + w.scale_bytes + block_begin * T::kQuantBytes;
    for (int b = 0; b < blocks; ++b) {
      for (int part = 0; part < kParts; ++part) {
        typename V::I operands[kOperands];
        UnpackBlock<V, T>(quants + b * T::kQuantBytes + part * V::kLanes * 4, operands);
        for (int j = 0; j < kOperands; ++j) {
          V::Store(&to.operands[b][t][j][part * V::kLanes * 4], operands[j]);
        }
        const BlockScales<V> s = LoadScales<V, T>(scales, block_begin + b, part);
        V::StoreF(&to.scales[b][t][0][part * V::kLanes], s.scale[0]);
        if constexpr (T::kHalves) V::StoreF(&to.scales[b][t][1][part * V::kLanes], s.scale[1]);
        if constexpr (T::kHasMin) V::StoreF(&to.mins[b][t][part * V::kLanes], s.min);
      }
    }
  }
}

// Integer dot products of operands [kBegin, kEnd) of kTiles tiles with kRows rows.
template <class V, class T, int kVectors, int kRows, int kBegin, int kEnd>
inline void DotOperands(const uint8_t* operands, const RowBlock x[kRows], int half,
                        typename V::F dot[kRows][kVectors]) {
  constexpr int kParts = kTile / V::kLanes;
  typename V::I sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = SumBegin<V, T>(x[r].offset + half);
  }
#pragma GCC unroll 8
  for (int j = kBegin; j < kEnd; j += 2) {
    typename V::I w0[kVectors], w1[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const uint8_t* p =
          operands + v / kParts * kOperands * 64 + v % kParts * V::kLanes * 4 + j * 64;
      w0[v] = V::Load(p);
      w1[v] = V::Load(p + 64);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename V::I a0 = V::Broadcast32(x[r].q + 4 * j);
      const typename V::I a1 = V::Broadcast32(x[r].q + 4 * j + 4);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = V::template DotPair<T::kBits>(sum[r][v], w0[v], w1[v], a0, a1);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) dot[r][v] = SumEnd<V, T>(sum[r][v], x[r].offset + half);
  }
}

// kRows rows times kTiles unpacked tiles; totals stay in registers over `blocks` blocks, and in
// `out` from one call to the next.
template <class V, class T, int kTiles, int kRows>
void MultiplyUnpacked(const Unpacked<V, T, kTiles>& w, const Int8Rows& x, int64_t row,
                      int64_t block_begin, int blocks, bool accumulate, float* out,
                      int64_t out_stride, int columns) {
  constexpr int kParts = kTile / V::kLanes;
  constexpr int kVectors = kTiles * kParts;
  typename V::F total[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      total[r][v] = accumulate
                        ? V::LoadN(out + r * out_stride + v * V::kLanes, columns - v * V::kLanes)
                        : V::SetF(0.0f);
    }
  }
  for (int b = 0; b < blocks; ++b) {
    RowBlock at[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) at[r] = At<V, T>(x, row + r, block_begin + b);
    typename V::F dot[T::kSums][kRows][kVectors];
    const uint8_t* operands = &w.operands[b][0][0][0];
    if constexpr (T::kHalves) {
      DotOperands<V, T, kVectors, kRows, 0, 4>(operands, at, 0, dot[0]);
      DotOperands<V, T, kVectors, kRows, 4, 8>(operands, at, 1, dot[1]);
    } else {
      DotOperands<V, T, kVectors, kRows, 0, 8>(operands, at, 0, dot[0]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const int lane = v % kParts * V::kLanes;
      BlockScales<V> s;
      s.scale[0] = V::LoadF(&w.scales[b][v / kParts][0][lane]);
      if constexpr (T::kHalves) s.scale[1] = V::LoadF(&w.scales[b][v / kParts][1][lane]);
      if constexpr (T::kHasMin) s.min = V::LoadF(&w.mins[b][v / kParts][lane]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        typename V::F dots[2];
        dots[0] = dot[0][r][v];
        if constexpr (T::kHalves) dots[1] = dot[1][r][v];
        total[r][v] = AddScaled<V, T>(total[r][v], dots, s, at[r]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      V::StoreN(out + r * out_stride + v * V::kLanes, total[r][v], columns - v * V::kLanes);
    }
  }
}

// Calls MultiplyUnpacked for `rows` in [1, kRows].
template <class V, class T, int kTiles, int kRows>
inline void MultiplyUnpackedRows(int rows, const Unpacked<V, T, kTiles>& w, const Int8Rows& x,
                                 int64_t row, int64_t block_begin, int blocks, bool accumulate,
                                 float* out, int64_t out_stride, int columns) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      MultiplyUnpackedRows<V, T, kTiles, kRows - 1>(rows, w, x, row, block_begin, blocks,
                                                    accumulate, out, out_stride, columns);
      return;
    }
  }
  MultiplyUnpacked<V, T, kTiles, kRows>(w, x, row, block_begin, blocks, accumulate, out, out_stride,
                                        columns);
}

// Many rows, tiles [tile, tile + kTiles): unpacked once per stretch of k for all rows.
template <class V, class T, int kTiles>
void MultiplyTiles(const QuantizedPanels& w, const Int8Rows& x, const ProductRange& range,
                   int64_t tile) {
  Unpacked<V, T, kTiles> unpacked;
  const int columns = ColumnsIn<V, kTiles>(w.n, tile);
  const int64_t rows = range.row_end - range.row_begin;
  const int64_t groups = (rows + V::kGemmRows - 1) / V::kGemmRows;
  const int64_t stretches = (w.blocks + kUnpackBlocks - 1) / kUnpackBlocks;
  for (int64_t stretch = 0; stretch < stretches; ++stretch) {
    const int64_t block = stretch * w.blocks / stretches;
    const auto blocks = static_cast<int>((stretch + 1) * w.blocks / stretches - block);
    Unpack<V, T, kTiles>(w, tile, block, blocks, unpacked);
    for (int64_t group = 0; group < groups; ++group) {
      // Groups of nearly equal size: a last group of one row would leave most lanes of time idle.
      const int64_t begin = range.row_begin + group * rows / groups;
      const int64_t end = range.row_begin + (group + 1) * rows / groups;
      MultiplyUnpackedRows<V, T, kTiles, V::kGemmRows>(
          static_cast<int>(end - begin), unpacked, x, begin, block, blocks,
          range.accumulate || block > 0, range.out + begin * range.out_stride + tile * kTile,
          range.out_stride, columns);
    }
  }
}

template <class V, class T>
void MultiplyQuantized(const QuantizedPanels& w, const Int8Rows& x, const ProductRange& range) {
  const int64_t rows = range.row_end - range.row_begin;
  if (rows <= kMaxDirectRows) {
    switch (rows) {
      case 1:
        return MultiplyDirect<V, T, 1>(w, x, range, range.row_begin);
      case 2:
        return MultiplyDirect<V, T, 2>(w, x, range, range.row_begin);
      case 3:
        return MultiplyDirect<V, T, 3>(w, x, range, range.row_begin);
      case 4:
        return MultiplyDirect<V, T, 4>(w, x, range, range.row_begin);
      case 5:
        return MultiplyDirect<V, T, 5>(w, x, range, range.row_begin);
      case 6:
        return MultiplyDirect<V, T, 6>(w, x, range, range.row_begin);
      default:
        return;
    }
  }
  int64_t tile = range.tile_begin;
  for (; tile + V::kGemmTiles <= range.tile_end; tile += V::kGemmTiles) {
    MultiplyTiles<V, T, V::kGemmTiles>(w, x, range, tile);
  }
  for (; tile < range.tile_end; ++tile) MultiplyTiles<V, T, 1>(w, x, range, tile);
}

template <class V>
void QuantizeRow(const float* x, int64_t blocks, const Int8RowOut& out) {
  constexpr int kVectors = kBlockK / V::kLanes;
  for (int64_t block = 0; block < blocks; ++block) {
    typename V::F v[kVectors];
    for (int i = 0; i < kVectors; ++i) v[i] = V::LoadF(x + block * kBlockK + i * V::kLanes);
    typename V::F largest = V::Abs(v[0]);
    for (int i = 1; i < kVectors; ++i) largest = V::Max(V::Abs(v[i]), largest);
    const float max = V::ReduceMax(largest);
    const float scale = max / 127.0f;
    // Below this the inverse would overflow; such a block is nothing beside the others.
    const float inverse = max > 1e-30f ? 127.0f / max : 0.0f;
    int32_t sum[2] = {0, 0};
    for (int i = 0; i < kVectors; ++i) {
      const typename V::I q = V::Round(V::Mul(v[i], V::SetF(inverse)));
      V::StoreI8(out.q + block * kBlockK + i * V::kLanes, q);
      sum[2 * i / kVectors] += V::ReduceAdd32(q);
    }
    out.scales[block] = scale;
    out.scaled_sums[block] = scale * static_cast<float>(sum[0] + sum[1]);
    out.half_offsets[2 * block] = -128 * sum[0];
    out.half_offsets[2 * block + 1] = -128 * sum[1];
    out.offsets[block] = -128 * (sum[0] + sum[1]);
  }
}

// e^x for x in [-87, 87], relative error below 2e-7: e^x = 2^i e^r, |r| <= ln 2 / 2, and a Taylor
// polynomial for e^r.
template <class V>
inline typename V::F Exp(typename V::F x) {
  using F = typename V::F;
  const typename V::I i = V::Round(V::Mul(x, V::SetF(1.44269504f)));
  const F n = V::ToFloat(i);
  // ln 2 in two parts, so that n ln 2 is subtracted to more than float precision.
  F r = V::Fma(n, V::SetF(-0.693359375f), x);
  r = V::Fma(n, V::SetF(2.12194440e-4f), r);
  F p = V::SetF(1.0f / 5040);
  p = V::Fma(p, r, V::SetF(1.0f / 720));
  p = V::Fma(p, r, V::SetF(1.0f / 120));
  p = V::Fma(p, r, V::SetF(1.0f / 24));
  p = V::Fma(p, r, V::SetF(1.0f / 6));
  p = V::Fma(p, r, V::SetF(0.5f));
  p = V::Fma(p, r, V::SetF(1.0f));
  p = V::Fma(p, r, V::SetF(1.0f));
  return V::Mul(p, V::PowerOfTwo(i));
}

template <class V>
void SiluMul(float* gate, const float* up, int64_t count) {
  using F = typename V::F;
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const int lanes = count - i < V::kLanes ? static_cast<int>(count - i) : V::kLanes;
    const F g = V::LoadN(gate + i, lanes);
    const F negated = V::Mul(g, V::SetF(-1.0f));
    const F e = Exp<V>(V::Max(V::Min(negated, V::SetF(87.0f)), V::SetF(-87.0f)));
    const F silu = V::Div(g, V::Add(e, V::SetF(1.0f)));
    V::StoreN(gate + i, V::Mul(silu, V::LoadN(up + i, lanes)), lanes);
  }
}

template <class V>
constexpr QuantizedKernels KernelsFor() {
  return {
      MultiplyQuantized<V, Format<8, ScaleKind::kScale>>,
      MultiplyQuantized<V, Format<4, ScaleKind::kScale>>,
      MultiplyQuantized<V, Format<4, ScaleKind::kScaleMin>>,
      MultiplyQuantized<V, Format<5, ScaleKind::kScale>>,
      MultiplyQuantized<V, Format<5, ScaleKind::kScaleMin>>,
      MultiplyQuantized<V, Format<4, ScaleKind::kSuperMin>>,
      MultiplyQuantized<V, Format<5, ScaleKind::kSuperMin>>,
      MultiplyQuantized<V, Format<6, ScaleKind::kSuperScale>>,
      QuantizeRow<V>,
      SiluMul<V>,
  };
}

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_QUANTIZED_KERNELS_INL_H_
