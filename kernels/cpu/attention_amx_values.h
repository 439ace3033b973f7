#ifndef REFRAIN_KERNELS_CPU_ATTENTION_AMX_VALUES_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_AMX_VALUES_H_

#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_pairs.h"
#include "kernels/cpu/attention_pieces.h"

// V of a segment as right operands of AMX tiles. Include only from files that are compiled for one
// level.
namespace refrain::kernels::cpu {
namespace {

// The values of kTileKeys keys: of the first steps where the chunk has them, then a copy.
struct AmxTileValues {
  static constexpr int kStepKeys = 32;  // of one tile product

  PairMatrix in_place = {nullptr, 0};
  PairMatrix copy = {nullptr, 0};  // of the steps behind them
  int steps_in_place = 0;
  bool seen = false;  // by any row
};

// Of each tile of keys of the segment. Returns how many.
inline int CollectValues(const SegmentArgs& a, AmxTileValues* values) {
  constexpr int kStepKeys = AmxTileValues::kStepKeys;
  auto* copy = reinterpret_cast<uint32_t*>(a.v_pairs);
  int tiles = 0;
  for (; a.segment_begin + tiles * kTileKeys < a.hi; ++tiles) values[tiles] = {};
  ForTiles(a, [&](int32_t tile, TileRange, bool outside) {
    if (outside) return;
    AmxTileValues& v = values[(tile - a.segment_begin) / kTileKeys];
    v.seen = true;
    const int32_t end = Least(tile + kTileKeys, a.hi);
    int32_t key = tile + kTileKeys;
    while (key > tile && ValuesInPlace(a, tile, key) == nullptr) key -= kStepKeys;
    v.steps_in_place = (key - tile) / kStepKeys;
    if (key > tile) v.in_place = {ValuesInPlace(a, tile, key), a.head_dim};
    if (key >= end) return;
    // Whole steps, and zeros in the columns behind head_dim.
    const int pairs = DivideUp(end - key, kStepKeys) * (kStepKeys / 2);
    GatherValues(a, key, pairs, copy);
    v.copy = {copy, a.o_stride};
    copy += pairs * a.o_stride;
  });
  return tiles;
}

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_AMX_VALUES_H_
