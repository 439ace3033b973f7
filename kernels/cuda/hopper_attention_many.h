#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MANY_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MANY_H_

#include <cstdint>

#include "kernels/cuda/hopper_attention_many_state.h"
#include "kernels/cuda/hopper_attention_queries.h"

// Hopper attention over a tile of more than kFewQueries queries: rows of a prefill, or a run that
// many sequences share. Queries are the M of both products, 64 for each warpgroup, and both
// warpgroups go through all blocks of keys:
//   S [64, 64 keys] = Q K^T         Q in registers (head_dim 256: shared memory), K K-major
//   O [64, head_dim] += P V         P in registers as S came out, V N-major as it lies
// A query's scores are in the four threads of a quad, so nothing of the softmax leaves the warp.
// Causal by order of computation: each row sees keys up to its own. Device code only.
// What a thread holds is said in hopper_attention_many_state.h.

namespace refrain::kernels::cuda {

template <class Shape>
class ManyQueries {
 public:
  using T = typename Shape::Element;
  static constexpr bool kQueriesInRegisters = Shape::kHeadDim <= 128;
  using State = ManyQueryState<Shape>;

  __device__ ManyQueries(const ChunkAttentionLaunch& args, const TileHeader& header,
                         HopperShared<Shape>& shared, RingPosition<Shape> tile_begin)
      : args_(args),
        header_(header),
        shared_(shared),
        tile_begin_(tile_begin),
        thread_(ThreadOfTile()),
        group_(Uniform(thread_ / kWarpgroupThreads)),
        warp_(thread_ % kWarpgroupThreads / 32),
        lane_(thread_ % 32) {}

  // The queries are in shared memory.
  __device__ void Run() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      queries_[half] = PlaceOfQuery(args_, header_, Query(half));
    }
    state_.Clear();
    const int32_t num_blocks = Uniform(header_.num_blocks);
    if (group_ * 64 < Uniform(header_.num_queries)) {
      if constexpr (kQueriesInRegisters) LoadFragments();
      if constexpr (kQueriesInRegisters) {
        AddBlocks(num_blocks);
        UseFragments();
      } else {
        for (int32_t block = 0; block < num_blocks; ++block) AddBlock(block);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Asked for again: kept, it would be registers in every block.
        state_.Write(half, TargetOf<Shape>(args_, PlaceOfQuery(args_, header_, Query(half))),
                     lane_);
      }
    } else {
      for (int32_t block = 0; block < num_blocks; ++block) {
        PassBlock(shared_, tile_begin_, block);
      }
    }
  }

 private:
  __device__ int Query(int half) const { return 64 * group_ + 16 * warp_ + lane_ / 4 + 8 * half; }

  __device__ void LoadFragments() {
    const int row = 64 * group_ + 16 * warp_ + lane_ % 16;
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      const int panel = step / Shape::kStepsPerPanel;
      const int unit = step % Shape::kStepsPerPanel * 2 + lane_ / 16;
      const uint32_t at = (panel * kMaxQueries + row) * Shape::kRowBytes +
                          KvSwizzledUnit(Shape::kPanel, row, unit) * 16;
      LoadMatrixX4(q_[step], shared_.queries + at);
    }
  }

  // Never stores: header_ is of a tile. ptxas of CUDA 13.0 loses operands in registers that a loop
  // of products leaves as they are, and gives their registers to others inside of it (seen with a
  // head dimension of 64 from the second block on; 13.1's does not), unless they are used behind
  // the loop.
  __device__ void UseFragments() const {
    if (Uniform(header_.tiles_end) == 0) return;
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      *reinterpret_cast<uint4*>(shared_.queries + 16 * step) =
          make_uint4(q_[step][0], q_[step][1], q_[step][2], q_[step][3]);
    }
  }

  // One block after the other, the scores of the next under way while this one's become weights:
  // the tensor cores do not wait for exponentials.
  __device__ void AddBlocks(int32_t num_blocks) {
    if (num_blocks == 0) return;
    RingPosition<Shape> at = tile_begin_;
    float s[kBlockKeys / 2], next[kBlockKeys / 2];
    BarrierWait(&shared_.full[at.unit()], at.parity());
    BeginScores(shared_.ring[at.unit()], next);
    WgmmaWait<0>();
#pragma unroll 1
    for (int32_t block = 0; block < num_blocks; ++block) {
      HoldRegisters(next);
      HoldRegisters(q_);
#pragma unroll
      for (int i = 0; i < kBlockKeys / 2; ++i) s[i] = next[i];
      const int k_unit = at.unit();
      const BlockInfo& info = shared_.blocks[k_unit / 2];
      if (Uniform(AllSeen(args_, header_, info)) == 0) Mask(info, s);
      LetGo(&shared_.empty[k_unit]);
      ++at.count;
      const int v_unit = at.unit();
      const uint32_t v_parity = at.parity();
      ++at.count;
      if (block + 1 < num_blocks) {
        BarrierWait(&shared_.full[at.unit()], at.parity());
        BeginScores(shared_.ring[at.unit()], next);
      }
      uint32_t p[kBlockKeys / 16][4];
      state_.ToWeights(s, ScoreScale(args_), p);
      BarrierWait(&shared_.full[v_unit], v_parity);
      AddValues(shared_.ring[v_unit], p);
      LetGo(&shared_.empty[v_unit]);
    }
  }

  __device__ void AddBlock(int32_t block) {
    RingPosition<Shape> at = tile_begin_;
    at.count += 2 * block;
    const int k_unit = at.unit();
    const BlockInfo& info = shared_.blocks[k_unit / 2];
    BarrierWait(&shared_.full[k_unit], at.parity());
    float s[kBlockKeys / 2];
    BeginScores(shared_.ring[k_unit], s);
    WgmmaWait<0>();
    HoldRegisters(s);
    if (Uniform(AllSeen(args_, header_, info)) == 0) Mask(info, s);
    LetGo(&shared_.empty[k_unit]);
    uint32_t p[kBlockKeys / 16][4];
    state_.ToWeights(s, ScoreScale(args_), p);
    ++at.count;
    const int v_unit = at.unit();
    BarrierWait(&shared_.full[v_unit], at.parity());
    AddValues(shared_.ring[v_unit], p);
    LetGo(&shared_.empty[v_unit]);
  }

  // Puts the products for a block's scores on their way; s, and q_ where it is read, belong to them
  // until they are waited for.
  __device__ void BeginScores(const unsigned char* keys, float (&s)[kBlockKeys / 2]) {
    const uint64_t k = SharedDescriptor(keys, 0, Shape::kEightRowsBytes, Shape::kSwizzle);
    const uint64_t q = SharedDescriptor(shared_.queries + group_ * 64 * Shape::kRowBytes, 0,
                                        Shape::kEightRowsBytes, Shape::kSwizzle);
    HoldRegisters(s);
    if constexpr (kQueriesInRegisters) HoldRegisters(q_);
    WgmmaFence();
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      const int panel = step / Shape::kStepsPerPanel, inside = step % Shape::kStepsPerPanel * 32;
      const uint64_t k_step = Advance(k, panel * Shape::kPanelBytes + inside);
      if constexpr (kQueriesInRegisters) {
        WgmmaM64K16<T, kBlockKeys>(s, q_[step], k_step, step > 0);
      } else {
        WgmmaM64K16<T, kBlockKeys>(s, Advance(q, panel * kMaxQueries * Shape::kRowBytes + inside),
                                   k_step, step > 0);
      }
    }
    WgmmaCommit();
  }

  __device__ void Mask(const BlockInfo& info, float (&s)[kBlockKeys / 2]) const {
#pragma unroll
    for (int i = 0; i < kBlockKeys / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const KeyPlace key = PlaceOfKey<false>(args_, info, 8 * i + lane_ % 4 * 2 + e);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& score = s[4 * i + 2 * half + e];
          score = Sees(args_, queries_[half], key) ? score : MinusInfinity();
        }
      }
    }
  }

  __device__ void AddValues(const unsigned char* values, uint32_t (&p)[kBlockKeys / 16][4]) {
    HoldRegisters(state_.o);
    HoldRegisters(p);
    WgmmaFence();
#pragma unroll
    for (int out = 0; out < State::kOuts; ++out) {
      const uint64_t v =
          SharedDescriptor(values + out * State::kOutN / Shape::kPanel * Shape::kPanelBytes,
                           Shape::kPanelBytes, Shape::kEightRowsBytes, Shape::kSwizzle);
#pragma unroll
      for (int step = 0; step < kBlockKeys / 16; ++step) {
        WgmmaM64K16<T, State::kOutN, true>(state_.o[out], p[step],
                                           Advance(v, step * 2 * Shape::kEightRowsBytes), true);
      }
    }
    WgmmaCommit();
    WgmmaWait<0>();
    HoldRegisters(state_.o);
    HoldRegisters(p);
  }

  const ChunkAttentionLaunch& args_;
  const TileHeader& header_;
  HopperShared<Shape>& shared_;
  const RingPosition<Shape> tile_begin_;
  const int thread_, group_, warp_, lane_;
  QueryPlace queries_[2];
  uint32_t q_[kQueriesInRegisters ? Shape::kSteps : 1][4];
  State state_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MANY_H_
