#include "kernels/cuda/attention_tile_arrays.h"

#include <algorithm>
#include <cstring>

namespace refrain::kernels::cuda {

void AttentionTileArrays::DropEmptyShares() {
  share_begin.erase(std::unique(share_begin.begin(), share_begin.end()), share_begin.end());
  if (share_begin.size() == 1) share_begin.push_back(share_begin.front());
}

void AttentionTileArrays::CollectParts() {
  for (RowGroup& rows : row_groups) rows.part_begin = rows.num_parts = 0;
  for (const TileMember& member : members) ++row_groups[member.row_group].num_parts;
  int32_t num_parts = 0;
  for (RowGroup& rows : row_groups) {
    if (rows.num_parts == 1) rows.num_parts = 0;
    rows.part_begin = num_parts;
    num_parts += rows.num_parts;
    rows.num_parts = 0;  // counted again below
  }
  parts.assign(num_parts, 0);
  part_keys.assign(num_parts, 0);
  num_partial_rows = 0;
  for (const AttentionTile& tile : tiles) {
    for (int32_t i = tile.member_begin; i < tile.member_end; ++i) {
      TileMember& member = members[i];
      RowGroup& rows = row_groups[member.row_group];
      const bool last = member.row_group + 1 == std::ssize(row_groups);
      const int32_t part_end = last ? num_parts : row_groups[member.row_group + 1].part_begin;
      if (rows.part_begin == part_end) continue;  // one tile has it all
      member.partial_row = num_partial_rows;
      num_partial_rows += rows.num_rows;
      // Left to right in the slot's keys.
      const int32_t key = std::max(tile.key_begin + member.key_offset, member.key_begin);
      int32_t at = rows.part_begin + rows.num_parts++;
      for (; at > rows.part_begin && part_keys[at - 1] > key; --at) {
        parts[at] = parts[at - 1];
        part_keys[at] = part_keys[at - 1];
      }
      parts[at] = member.partial_row;
      part_keys[at] = key;
    }
  }
}

void AttentionTileArrays::Serialize(bool reproducible, std::vector<std::byte>* to) const {
  AttentionTileList list{};
  list.num_shares = static_cast<int32_t>(share_begin.size()) - 1;
  list.num_tiles = static_cast<int32_t>(tiles.size());
  list.num_members = static_cast<int32_t>(members.size());
  list.num_chunks = static_cast<int32_t>(chunks.size());
  list.num_row_groups = static_cast<int32_t>(row_groups.size());
  list.num_parts = static_cast<int32_t>(parts.size());
  list.num_partial_rows = num_partial_rows;
  list.reproducible = reproducible ? 1 : 0;
  list.num_slots = num_slots;
  size_t bytes = sizeof(list);
  const auto place = [&](const auto& array, uint32_t& offset) {
    offset = static_cast<uint32_t>(bytes);
    bytes += (array.size() * sizeof(array[0]) + 15) / 16 * 16;
  };
  place(share_begin, list.share_begin_offset);
  place(tiles, list.tiles_offset);
  place(members, list.members_offset);
  place(chunks, list.chunks_offset);
  place(row_groups, list.row_groups_offset);
  place(parts, list.parts_offset);
  list.bytes = static_cast<uint32_t>(bytes);
  to->resize(bytes);
  std::memcpy(to->data(), &list, sizeof(list));
  const auto copy = [&](const auto& array, uint32_t offset) {
    if (!array.empty()) {
      std::memcpy(to->data() + offset, array.data(), array.size() * sizeof(array[0]));
    }
  };
  copy(share_begin, list.share_begin_offset);
  copy(tiles, list.tiles_offset);
  copy(members, list.members_offset);
  copy(chunks, list.chunks_offset);
  copy(row_groups, list.row_groups_offset);
  copy(parts, list.parts_offset);
}

}  // namespace refrain::kernels::cuda
