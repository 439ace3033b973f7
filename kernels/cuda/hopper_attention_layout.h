#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_LAYOUT_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_LAYOUT_H_

#include <cstdint>

#include "kernels/cuda/attention_tile_list.h"
#include "kernels/cuda/chunk_attention_hopper.h"
#include "kernels/cuda/kv_packing.h"
#include "kernels/cuda/wgmma.h"

// What the warps of the Hopper attention kernel (chunk_attention_hopper.cu) share: sizes, shared
// memory, and how keys are cut into blocks. Device code only.

namespace refrain::kernels::cuda {

inline constexpr int kBlockKeys = 64;                        // keys of one block: wgmma's M or N
inline constexpr int kMaxQueries = kHopperAttentionQueries;  // of a tile: 64 per warpgroup
inline constexpr int kFewQueries = 32;                       // up to here queries are wgmma's N
inline constexpr int kWarpgroups = 2;  // that compute; a third one has the warp that reads
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kComputeThreads = kWarpgroups * kWarpgroupThreads;
inline constexpr int kHopperThreads = kComputeThreads + kWarpgroupThreads;
inline constexpr int kComputeWarps = kComputeThreads / 32;
inline constexpr int kIdleThreads = kWarpgroupThreads - 32;  // beside the warp that reads
inline constexpr int kMaxPieces = 4;                         // chunks of a block: 64 / 16

// Registers of a thread: the launch gives all of them 168, what __launch_bounds__ leaves for one
// block on a multiprocessor; the reading warpgroup gives some of its to the others. PTX ISA,
// setmaxnreg: an increase waits until the block's own pool has that many, and the pool holds what
// the launch gave and decreases gave back, not what else the multiprocessor has.
inline constexpr int kLaunchRegisters = 65536 / kHopperThreads / 8 * 8;
inline constexpr int kReadRegisters = 56;
inline constexpr int kComputeRegisters = 224;
static_assert(kReadRegisters + kWarpgroups * kComputeRegisters ==
              (1 + kWarpgroups) * kLaunchRegisters);

// Named barriers (0 is __syncthreads): one of each warpgroup, one of both.
inline constexpr int kWarpgroupBarrier = 1;
inline constexpr int kComputeBarrier = kWarpgroupBarrier + kWarpgroups;

// The same value in all lanes, and the compiler knows: products may then stand behind a branch on
// it.
__device__ __forceinline__ int32_t Uniform(int32_t value) {
  return __shfl_sync(0xffffffffu, value, 0);
}

// threadIdx.x, the compiler not knowing: what follows from it is not kept in registers from tile to
// tile.
__device__ __forceinline__ int ThreadOfTile() {
  uint32_t thread[1] = {threadIdx.x};
  HoldRegisters(thread);
  return static_cast<int>(thread[0]);
}

// Where the keys of a block are: piece p is rows [p * 64 / pieces, ...) of the block, of one chunk.
// Written by the reading warp with the block's K.
struct BlockInfo {
  int32_t first_key[kMaxPieces];  // tile key of the piece's first row
  int32_t tokens[kMaxPieces];     // rows that hold a key; K of the others is anything, V zeros
  int32_t chunk[kMaxPieces];
  int32_t first_token[kMaxPieces];  // in the chunk
  int32_t whole;                    // 64 consecutive keys
};

// A tile as the computing warps need it, written by the reading warp, which is one tile ahead.
// Query i of the tile is row i / heads and head first_head + i % heads.
struct TileHeader {
  int32_t tiles_end;  // 1: there is no tile, the block is done
  int32_t num_blocks;
  int32_t num_queries;
  int32_t heads;
  int32_t first_head;
  int32_t kv_head;
  int32_t head_block;  // of the item, for counters
  int32_t member_begin, member_end;
  int32_t partial;            // 1: some row leaves a partial state
  int32_t low_max, high_min;  // all rows see keys [low_max, high_min)
  // Per row: the tile keys it sees, its row in q and out, its partial row or -1.
  int32_t low[kMaxQueries], high[kMaxQueries];
  int32_t row[kMaxQueries], partial_row[kMaxQueries];
  int32_t member[kMaxQueries];  // from member_begin
};

// A member of a tile whose parts are all counted in, or not.
struct FinishedMember {
  int32_t num_parts;      // 0: some are still to come, or it has none
  int32_t first_row;      // in the tile
  uint32_t parts_offset;  // of its first, in bytes of the tile list
};

// T is F16 or BF16.
template <class T, int kDim>
struct HopperShape {
  using Element = T;
  static constexpr int kHeadDim = kDim;
  static constexpr int kPanel = KvPanelElements(2, kDim);  // elements
  static_assert(kPanel != 0);
  static constexpr int kPanels = kDim / kPanel;
  static constexpr Swizzle kSwizzle = kPanel == 64 ? Swizzle::k128Bytes : Swizzle::k64Bytes;
  static constexpr uint32_t kRowBytes = kPanel * 2;  // of one panel
  static constexpr uint32_t kEightRowsBytes = 8 * kRowBytes;
  static constexpr uint32_t kPanelBytes = kBlockKeys * kRowBytes;
  static constexpr uint32_t kUnitBytes = kPanels * kPanelBytes;  // K or V of a block
  static constexpr int kSteps = kDim / 16;                       // products along the head dim
  static constexpr int kStepsPerPanel = kPanel / 16;
  static constexpr int kDimBlocks = (kDim + 63) / 64;  // of 64 output elements, the last part full

  // Queries in shared memory: panels of [kFewQueries or kMaxQueries][kPanel], behind the few
  // queries the sums that the second warpgroup hands to the first.
  static constexpr uint32_t kFewQueryBytes = kFewQueries * kDim * 2;
  static constexpr uint32_t kHandOverBytes = kDimBlocks * 64 * kFewQueries * sizeof(float);
  static constexpr uint32_t kManyQueryBytes = kMaxQueries * kDim * 2;
  static constexpr uint32_t kQueryBytes = kFewQueryBytes + kHandOverBytes > kManyQueryBytes
                                              ? kFewQueryBytes + kHandOverBytes
                                              : kManyQueryBytes;
  static constexpr uint32_t kWeightBytes = kBlockKeys * kFewQueries * 2;  // P of one warpgroup

  // Units of the ring: as many as fit, an even number and at most 16.
  static constexpr uint32_t kSharedBytes = 227 * 1024;
  static constexpr uint32_t kRestBytes = 10 * 1024;  // of HopperShared behind the arrays
  static constexpr int kUnitsThatFit =
      (kSharedBytes - kQueryBytes - kWarpgroups * kWeightBytes - kRestBytes) / kUnitBytes;
  static constexpr int kUnits = kUnitsThatFit > 16 ? 16 : kUnitsThatFit / 2 * 2;
  static_assert(kUnits >= 4);
};

template <class Shape>
struct HopperShared {
  alignas(1024) unsigned char ring[Shape::kUnits][Shape::kUnitBytes];
  alignas(1024) unsigned char queries[Shape::kQueryBytes];
  alignas(1024) unsigned char weights[kWarpgroups][Shape::kWeightBytes];
  // Per warpgroup and warp, column maxima and sums; then the second warpgroup's (m, n).
  float columns[kWarpgroups][4][kFewQueries];
  float handed_m[kFewQueries], handed_n[kFewQueries];
  // A ring unit is full when its bytes landed, empty when all computing warps let go of it, whether
  // they read it or not. The same for the two headers.
  uint64_t full[Shape::kUnits], empty[Shape::kUnits];
  uint64_t header_full[2], header_empty[2];
  BlockInfo blocks[Shape::kUnits / 2];
  TileHeader headers[2];
  FinishedMember finished[kMaxQueries];
};

// Where the reading warp or a computing warp is in the ring: unit `count` of the whole launch.
template <class Shape>
struct RingPosition {
  uint32_t count = 0;
  __device__ __forceinline__ uint32_t unit() const { return count % Shape::kUnits; }
  __device__ __forceinline__ uint32_t parity() const { return count / Shape::kUnits % 2; }
};

// A computing warp has done with a unit.
__device__ __forceinline__ void LetGo(uint64_t* empty) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) BarrierArrive(empty);
}

// For a warpgroup that has nothing to do with the tile's block `block`. It must wait like the other
// one: barriers tell only whether the last phase was odd or even, so nobody may be a whole turn of
// the ring ahead.
template <class Shape>
__device__ __forceinline__ void PassBlock(HopperShared<Shape>& shared,
                                          RingPosition<Shape> tile_begin, int32_t block) {
  RingPosition<Shape> at = tile_begin;
  at.count += 2 * block;
#pragma unroll 1
  for (int i = 0; i < 2; ++i, ++at.count) {
    BarrierWait(&shared.full[at.unit()], at.parity());
    LetGo(&shared.empty[at.unit()]);
  }
}

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_LAYOUT_H_
