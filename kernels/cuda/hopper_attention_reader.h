#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_READER_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_READER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_device.h"
#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/hopper_attention_layout.h"
#include "kernels/cuda/hopper_attention_pieces.h"

// The reading warp of the Hopper attention kernel: goes through the tiles of its block's items and
// brings K and V of their keys into the ring, block by block, as far ahead as the ring is long,
// past the end of one tile into the next. Device code only.

namespace refrain::kernels::cuda {

template <class Shape>
class TileReader {
 public:
  __device__ TileReader(const ChunkAttentionLaunch& args, const HeadBlocks& heads,
                        HopperShared<Shape>& shared)
      : args_(args), heads_(heads), shared_(shared), lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void Run() {
    const int32_t items = args_.tiles->num_shares * heads_.count();
#pragma unroll 1
    for (int32_t item = static_cast<int32_t>(blockIdx.x); item < items;
         item += static_cast<int32_t>(gridDim.x)) {
      const int32_t* const share = ReadTileLists(args_.tiles).share_begin + item / heads_.count();
      const int32_t tile_end = share[1];
#pragma unroll 1
      for (int32_t tile = share[0]; tile < tile_end; ++tile) {
        ReadTile(tile, item % heads_.count());
      }
    }
    TileHeader& header = BeginHeader();
    if (lane_ == 0) header.tiles_end = 1;
    PublishHeader();
  }

 private:
  __device__ PieceCut Cut() const { return CutOf(args_.kv.chunk_tokens); }

  __device__ TileHeader& BeginHeader() {
    BarrierWait(&shared_.header_empty[headers_ % 2], headers_ / 2 % 2 ^ 1);
    return shared_.headers[headers_ % 2];
  }

  __device__ void PublishHeader() {
    __syncwarp();
    if (lane_ == 0) BarrierArrive(&shared_.header_full[headers_ % 2]);
    ++headers_;
  }

  // Where the lists are is read anew for each tile: kept, it would be a fifth of the registers.
  __device__ void ReadTile(int32_t index, int32_t head_block) {
    TileHeader& header = BeginHeader();
    const TileLists lists = ReadTileLists(args_.tiles);
    const AttentionTile& tile = lists.tiles[index];
    const KeySight sight = WriteRows(tile, lists, header);
    __syncwarp();  // what the lanes wrote of rows is read for pieces
    const TilePieces pieces(tile, lists, Cut(), sight, header.low, header.high);
    int32_t begin, end;
    pieces.Find(lane_, begin, end);
    if (lane_ == 0) {
      header.tiles_end = 0;
      header.num_blocks = (end - begin + Cut().per_block - 1) / Cut().per_block;
      header.heads = heads_.NumHeads(head_block);
      header.num_queries = tile.num_rows * header.heads;
      header.first_head = heads_.FirstHead(head_block);
      header.kv_head = heads_.KvHead(head_block);
      header.head_block = head_block;
      header.member_begin = tile.member_begin;
      header.member_end = tile.member_end;
      header.low_max = sight.low_max;
      header.high_min = sight.high_min;
    }
    PublishHeader();
    // Up to here nothing was read that the kernel before may have written (args.early).
    if (headers_ == 1) {
      WaitForKernelBefore();
      LetDependentsStart();
    }
    ReadBlocks(pieces, heads_.KvHead(head_block), begin, end);
  }

  // The header's rows; a lane per member, or the lanes over the rows where members are few.
  __device__ KeySight WriteRows(const AttentionTile& tile, const TileLists& lists,
                                TileHeader& header) {
    KeySight sight = {INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN};
    bool partial = false;
    const bool few = tile.member_end - tile.member_begin < 4;
#pragma unroll 1
    for (int32_t m = tile.member_begin + (few ? 0 : lane_); m < tile.member_end;
         m += few ? 1 : 32) {
      const TileMember member = lists.members[m];
      const RowGroup group = lists.row_groups[member.row_group];
      const SlotStep step = args_.steps[group.slot];
      partial = partial || member.partial_row >= 0;
#pragma unroll 1
      for (int32_t i = few ? lane_ : 0; i < group.num_rows; i += few ? 32 : 1) {
        // The row's own key is the last that it sees.
        const int32_t own = step.key_end - step.num_rows + group.row_begin + i;
        int32_t low = step.key_begin > member.key_begin ? step.key_begin : member.key_begin;
        low -= member.key_offset;
        int32_t high = (own + 1 < member.key_end ? own + 1 : member.key_end) - member.key_offset;
        low = low < tile.key_begin ? tile.key_begin : low;
        high = high > tile.key_end ? tile.key_end : high;
        const int32_t row = member.first_row + i;
        header.low[row] = low;
        header.high[row] = high;
        header.row[row] = step.row_begin + group.row_begin + i;
        header.member[row] = m - tile.member_begin;
        header.partial_row[row] = member.partial_row < 0 ? -1 : member.partial_row + i;
        sight.low_max = low > sight.low_max ? low : sight.low_max;
        sight.high_min = high < sight.high_min ? high : sight.high_min;
        if (low >= high) continue;
        sight.low_min = low < sight.low_min ? low : sight.low_min;
        sight.high_max = high > sight.high_max ? high : sight.high_max;
      }
    }
    partial = __any_sync(kAllLanes, partial) != 0;
    if (lane_ == 0) header.partial = partial ? 1 : 0;
    return {WarpMin(sight.low_min), WarpMax(sight.low_max), WarpMin(sight.high_min),
            WarpMax(sight.high_max)};
  }

  __device__ void ReadBlocks(const TilePieces& pieces, int32_t kv_head, int32_t begin,
                             int32_t end) {
#pragma unroll 1
    for (int32_t x = begin; x < end; x += 32) {  // per_block divides 32
      Piece own;
      if (x + lane_ < end) own = pieces.At(x + lane_);
      const int32_t here = end - x < 32 ? end - x : 32;
#pragma unroll 1
      for (int32_t first = 0; first < here; first += Cut().per_block) {
        ReadBlock(own, first, kv_head);
      }
    }
  }

  // Pieces [first, first + per_block) are in the lanes of those numbers.
  __device__ void ReadBlock(const Piece& own, int32_t first, int32_t kv_head) {
    // K is in an even unit, V in the next one: the ring has an even number of them.
    const uint32_t unit = ring_.unit();
    BlockInfo& info = shared_.blocks[unit / 2];
    BarrierWait(&shared_.empty[unit], ring_.parity() ^ 1);
    BarrierWait(&shared_.empty[unit + 1], ring_.parity() ^ 1);
    ring_.count += 2;

    const int32_t p = lane_ - first;
    const bool mine = p >= 0 && p < Cut().per_block;
    int32_t tokens = mine ? own.tokens : 0;
    if (mine) {
      info.first_key[p] = own.first_key;
      info.tokens[p] = own.tokens;
      info.chunk[p] = own.chunk;
      info.first_token[p] = own.first_token;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      tokens += __shfl_xor_sync(kAllLanes, tokens, lanes);
    }
    if (lane_ == 0) info.whole = tokens == kBlockKeys ? 1 : 0;
    if (tokens < kBlockKeys) ClearRows(own, first, shared_.ring[unit + 1]);
    __syncwarp();
    const uint32_t bytes = static_cast<uint32_t>(tokens) * Shape::kHeadDim * 2;
    if (lane_ == 0) {
      BarrierExpectBytes(&shared_.full[unit], bytes);
      BarrierExpectBytes(&shared_.full[unit + 1], bytes);
    }
    __syncwarp();
    CopyPieces(own, first, kv_head, unit);
  }

  // Zeros for the rows of V that hold no key: a weight of 0 must not meet what is not a number.
  __device__ void ClearRows(const Piece& own, int32_t first, unsigned char* v) {
    constexpr int kUnitsOfRow = static_cast<int>(Shape::kRowBytes) / 16;
#pragma unroll 1
    for (int32_t p = 0; p < Cut().per_block; ++p) {
      const int32_t tokens = __shfl_sync(kAllLanes, own.tokens, first + p);
      const int32_t units = (Cut().rows - tokens) * kUnitsOfRow;
      unsigned char* const rows = v + (p * Cut().rows + tokens) * Shape::kRowBytes;
#pragma unroll 1
      for (int panel = 0; panel < Shape::kPanels; ++panel) {
#pragma unroll 1
        for (int32_t i = lane_; i < units; i += 32) {
          *reinterpret_cast<uint4*>(rows + panel * Shape::kPanelBytes + i * 16) =
              make_uint4(0, 0, 0, 0);
        }
      }
    }
    AsyncProxyFence();
  }

  // A whole chunk of 64 tokens is one copy as it lies; else each panel of each piece is one.
  __device__ void CopyPieces(const Piece& own, int32_t first, int32_t kv_head, uint32_t unit) {
    const int32_t chunk_tokens = args_.kv.chunk_tokens;
    const bool as_it_lies =
        chunk_tokens == kBlockKeys && __shfl_sync(kAllLanes, own.tokens, first) == kBlockKeys;
    const int32_t copies = as_it_lies ? 1 : Cut().per_block * Shape::kPanels;
#pragma unroll 1
    for (int32_t base = 0; base < copies; base += 32) {
      const int32_t copy = base + lane_;
      const int32_t p = as_it_lies ? 0 : copy / Shape::kPanels;
      const int32_t panel = as_it_lies ? 0 : copy % Shape::kPanels;
      const int source = (first + p) % 32;
      const int32_t chunk = __shfl_sync(kAllLanes, own.chunk, source);
      const int32_t first_token = __shfl_sync(kAllLanes, own.first_token, source);
      const int32_t tokens = __shfl_sync(kAllLanes, own.tokens, source);
      const uint32_t bytes = as_it_lies ? Shape::kUnitBytes : tokens * Shape::kRowBytes;
      if (copy >= copies || bytes == 0) continue;
      const size_t from =
          (static_cast<size_t>(panel) * chunk_tokens + first_token) * Shape::kRowBytes;
      const uint32_t to = panel * Shape::kPanelBytes + p * Cut().rows * Shape::kRowBytes;
      const KvPoolView& kv = args_.kv;
      const std::byte* const keys = kv.base + chunk * kv.chunk_bytes +
                                    args_.layer * kv.layer_bytes + kv_head * kv.head_bytes + from;
      BulkCopyToShared(shared_.ring[unit] + to, keys, bytes, &shared_.full[unit]);
      BulkCopyToShared(shared_.ring[unit + 1] + to, keys + kv.v_offset_bytes, bytes,
                       &shared_.full[unit + 1]);
    }
    __syncwarp();
  }

  const ChunkAttentionLaunch& args_;
  const HeadBlocks& heads_;
  HopperShared<Shape>& shared_;
  const int lane_;
  RingPosition<Shape> ring_;
  uint32_t headers_ = 0;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_READER_H_
