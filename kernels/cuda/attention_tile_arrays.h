#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_TILE_ARRAYS_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_TILE_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_tile_list.h"

namespace refrain::kernels::cuda {

// The arrays of a tile list while it is put together, and the end of that: which tiles a row
// group's state comes in parts from, and the list as bytes. AttentionTiles fills the arrays and
// says what they mean. Not thread-safe; cannot fail.
struct AttentionTileArrays {
  // What a tile costs beside its keys may use up several shares at once. Items are dealt out in
  // turn: empty ones would put others on the same block. One share stays.
  void DropEmptyShares();
  // From tiles, members and row groups: the members' partial rows, the row groups' parts.
  void CollectParts();
  void Serialize(bool reproducible, std::vector<std::byte>* to) const;

  std::vector<int32_t> share_begin;  // [shares + 1] into tiles
  std::vector<AttentionTile> tiles;
  std::vector<TileMember> members;
  std::vector<TileChunk> chunks;
  std::vector<RowGroup> row_groups;
  std::vector<int32_t> parts;
  std::vector<int32_t> part_keys;  // [parts] the slot's key index that the part begins at
  int32_t num_partial_rows = 0;
  int32_t num_slots = 0;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_TILE_ARRAYS_H_
