#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_TILE_LIST_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_TILE_LIST_H_

#include <cstdint>

// The tile list as it lies in device memory (attention_tiles.h makes it and says what it means).
// Plain structs and constexpr functions: host and device code both read them.
namespace refrain::kernels::cuda {

// Heads of one KV head's group that one tile takes: all of them, unless that would be more queries
// than a tile holds. A head block is what one tile of the list is worked on for at a time.
struct HeadBlocks {
  int32_t num_kv_heads = 0;
  int32_t group = 0;            // query heads per KV head
  int32_t heads_per_block = 0;  // of one group; the group's last block may have fewer
  int32_t blocks_per_kv_head = 0;

  constexpr int32_t count() const { return num_kv_heads * blocks_per_kv_head; }
  constexpr int32_t KvHead(int32_t block) const { return block / blocks_per_kv_head; }
  constexpr int32_t FirstHead(int32_t block) const {
    return KvHead(block) * group + block % blocks_per_kv_head * heads_per_block;
  }
  constexpr int32_t NumHeads(int32_t block) const {
    const int32_t before = block % blocks_per_kv_head * heads_per_block;
    return group - before < heads_per_block ? group - before : heads_per_block;
  }
};

constexpr HeadBlocks MakeHeadBlocks(int num_heads, int num_kv_heads, int max_queries) {
  HeadBlocks blocks;
  blocks.num_kv_heads = num_kv_heads;
  blocks.group = num_heads / num_kv_heads;
  blocks.heads_per_block = blocks.group < max_queries ? blocks.group : max_queries;
  blocks.blocks_per_kv_head = (blocks.group + blocks.heads_per_block - 1) / blocks.heads_per_block;
  return blocks;
}

// A chunk of a tile. It holds the tile's keys from key_begin up to the next chunk's key_begin (the
// tile's last chunk: up to the tile's key_end), its token 0 first. Only with `reproducible` may the
// tile begin behind its first chunk's key_begin.
struct TileChunk {
  int32_t chunk;      // index into the pool
  int32_t key_begin;  // tile key of the chunk's token 0
};

// Query rows of one slot that are always together: rows [row_begin, row_begin + num_rows) of the
// slot's rows. Row i of them is row steps[slot].row_begin + row_begin + i of q and out, and key
// index steps[slot].key_end - steps[slot].num_rows + row_begin + i of the slot.
struct RowGroup {
  int32_t slot;
  int32_t row_begin;
  int32_t num_rows;
  int32_t part_begin;  // into parts
  int32_t num_parts;   // 0: one tile has all keys, nothing to merge
};

// A row group's place in a tile.
struct TileMember {
  int32_t row_group;
  int32_t first_row;    // rows of the tile before this member's
  int32_t key_offset;   // tile key k is the slot's key index k + key_offset
  int32_t key_begin;    // the slot's key indexes before here are not this tile's business
  int32_t key_end;      // the slot's key indexes from here on are not this tile's business
  int32_t partial_row;  // of its first row; -1: the tile's result is the output
};

struct AttentionTile {
  int32_t chunk_begin, chunk_end;    // into chunks
  int32_t key_begin, key_end;        // in the tile's own count of keys
  int32_t member_begin, member_end;  // into members
  int32_t num_rows;                  // of all members; times heads_per_block <= max_queries
  int32_t bundled;  // 1: each member has keys of its own, one member's behind the other's
};

// Header of the list; arrays follow at `..._offset` bytes from the header's own beginning.
//
// Work item i of num_shares * HeadBlocks::count() is share i / count for head block i % count; a
// thread block takes items blockIdx.x, blockIdx.x + gridDim.x, and so on, and of an item the tiles
// [share_begin[share], share_begin[share + 1]) in order.
//
// Partial states (where they lie: chunk_attention.h): the state of partial row p and head h has
// index p * num_heads + h; its m is in units of log2, that is of scores times scale times log2 e. A
// state of no keys is m = -inf, n = 0 and any finite o.
//
// Merging: whoever finishes a tile adds one to counters[row_group * HeadBlocks::count() + head
// block] of each member with a partial row, after its partials are visible to the whole device; who
// finds num_parts - 1 there is the last, sets the counter back to 0, merges the states of partial
// rows parts[part_begin + j] + i, j ascending (left to right in the row's keys), and writes row i.
struct AttentionTileList {
  int32_t num_shares;
  int32_t num_tiles;
  int32_t num_members;
  int32_t num_chunks;
  int32_t num_row_groups;
  int32_t num_parts;
  int32_t num_partial_rows;
  int32_t reproducible;  // 0 or 1
  uint32_t share_begin_offset;
  uint32_t tiles_offset;
  uint32_t members_offset;
  uint32_t chunks_offset;
  uint32_t row_groups_offset;
  uint32_t parts_offset;
  uint32_t bytes;     // of all
  int32_t num_slots;  // of the steps that the list is for
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_TILE_LIST_H_
