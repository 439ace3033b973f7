#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_FEW_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_FEW_H_

#include <cstdint>

#include "kernels/cuda/hopper_attention_few_state.h"
#include "kernels/cuda/hopper_attention_queries.h"

// Hopper attention over a tile of at most kFewQueries queries, the usual tile of decoding. Queries
// are the N of both products, keys and then head dimensions the M, so that few queries cost little:
//   S^T [64 keys, N] = K Q^T         both K-major in shared memory
//   O^T [head_dim, N] += V^T P^T     V^T M-major as V lies; P^T N-major, written by the threads
// The two warpgroups take blocks of keys in turn, each with a state of its own, and the second
// hands its state to the first at the end. What a thread holds of S^T and O^T is said in
// hopper_attention_few_state.h. Device code only.

namespace refrain::kernels::cuda {

template <class Shape, int kN>
class FewQueries {
 public:
  using T = typename Shape::Element;
  static constexpr int kColumns = FewQueryState<Shape, kN>::kColumns;
  // Of a bundled tile, which has few queries, no block is seen by all.
  static constexpr bool kPlacesHeld = kColumns <= 4;  // registers

  __device__ FewQueries(const ChunkAttentionLaunch& args, const TileHeader& header,
                        HopperShared<Shape>& shared, RingPosition<Shape> tile_begin)
      : args_(args),
        header_(header),
        shared_(shared),
        tile_begin_(tile_begin),
        thread_(ThreadOfTile()),
        group_(Uniform(thread_ / kWarpgroupThreads)),
        warp_(thread_ % kWarpgroupThreads / 32),
        lane_(thread_ % 32),
        state_(shared, group_, warp_, lane_) {}

  // The queries are in shared memory.
  __device__ void Run() {
    state_.Clear();
    if constexpr (kPlacesHeld) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        places_[c] = PlaceOfQuery(args_, header_, state_.Query(c));
      }
    }
    const int32_t num_blocks = Uniform(header_.num_blocks);
    for (int32_t block = 0; block < num_blocks; ++block) {
      if (block % kWarpgroups == group_) {
        AddBlock(block);
      } else {
        PassBlock(shared_, tile_begin_, block);
      }
    }
    state_.SumColumns();
    if (num_blocks > 1) state_.JoinWarpgroups();
    if (group_ == 0) state_.Write(args_, header_);
  }

 private:
  __device__ void AddBlock(int32_t block) {
    RingPosition<Shape> at = tile_begin_;
    at.count += 2 * block;
    const int k_unit = at.unit();
    const BlockInfo& info = shared_.blocks[k_unit / 2];
    BarrierWait(&shared_.full[k_unit], at.parity());

    float s[kN / 2];
    const uint64_t k =
        SharedDescriptor(shared_.ring[k_unit], 0, Shape::kEightRowsBytes, Shape::kSwizzle);
    const uint64_t q =
        SharedDescriptor(shared_.queries, 0, Shape::kEightRowsBytes, Shape::kSwizzle);
    HoldRegisters(s);
    WgmmaFence();
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      const int panel = step / Shape::kStepsPerPanel, inside = step % Shape::kStepsPerPanel * 32;
      WgmmaM64K16<T, kN>(s, Advance(k, panel * Shape::kPanelBytes + inside),
                         Advance(q, panel * kFewQueries * Shape::kRowBytes + inside), step > 0);
    }
    WgmmaCommit();
    WgmmaWait<0>();
    HoldRegisters(s);
    if (Uniform(AllSeen(args_, header_, info)) == 0) Mask(info, s);
    LetGo(&shared_.empty[k_unit]);

    float factor[kColumns];
    const float scale = ScoreScale(args_);
    state_.RaiseMaxima(s, scale, factor);
    WriteWeights(s, scale);

    ++at.count;
    const int v_unit = at.unit();
    BarrierWait(&shared_.full[v_unit], at.parity());
    AddValues(shared_.ring[v_unit], factor);
    LetGo(&shared_.empty[v_unit]);
  }

  __device__ void Mask(const BlockInfo& info, float (&s)[kN / 2]) const {
    const int row = 16 * warp_ + lane_ / 4;
    const KeyPlace keys[2] = {PlaceOfKey<true>(args_, info, row),
                              PlaceOfKey<true>(args_, info, row + 8)};
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const QueryPlace query = kPlacesHeld ? places_[kPlacesHeld ? c : 0]
                                           : PlaceOfQuery(args_, header_, state_.Query(c));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& score = s[c / 2 * 4 + half * 2 + c % 2];
        score = Sees(args_, query, keys[half]) ? score : MinusInfinity();
      }
    }
  }

  // P^T, as units of 8 keys by 8 queries (128 bytes): unit (keys 8 a, queries 8 b) is 8 b + a.
  __device__ void WriteWeights(const float (&s)[kN / 2], float scale) {
    unsigned char* const weights = shared_.weights[group_];
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
      // Where nothing was seen yet m is -inf and every score too: weights 2^(-inf - 0) = 0.
      const float m0 = state_.m[2 * i] > MinusInfinity() ? state_.m[2 * i] : 0.0f;
      const float m1 = state_.m[2 * i + 1] > MinusInfinity() ? state_.m[2 * i + 1] : 0.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float p0 = ExpTwo(fmaf(s[4 * i + 2 * half], scale, -m0));
        const float p1 = ExpTwo(fmaf(s[4 * i + 2 * half + 1], scale, -m1));
        state_.n[2 * i] += p0;
        state_.n[2 * i + 1] += p1;
        const int unit = 8 * i + 2 * warp_ + half;
        *reinterpret_cast<uint32_t*>(weights + unit * 128 + lane_ * 4) = PackPair<T>(p0, p1);
      }
    }
    AsyncProxyFence();
    NamedBarrierSync(kWarpgroupBarrier + group_, kWarpgroupThreads);
  }

  __device__ void AddValues(const unsigned char* values, const float (&factor)[kColumns]) {
#pragma unroll
    for (int b = 0; b < Shape::kDimBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) state_.o[b][i] *= factor[i / 4 * 2 + i % 2];
    }
    const uint64_t p = SharedDescriptor(shared_.weights[group_], /*leading_bytes=*/128,
                                        /*stride_bytes=*/1024, Swizzle::kNone);
    HoldRegisters(state_.o);
    WgmmaFence();
#pragma unroll
    for (int b = 0; b < Shape::kDimBlocks; ++b) {
      // 64 dimensions are a panel of 64 or two of 32. The last block of 96 has one panel only, and
      // reads it twice; the results behind it are not used.
      const bool half = b * 64 + 64 > Shape::kHeadDim;
      const uint64_t v =
          SharedDescriptor(values + b * 64 / Shape::kPanel * Shape::kPanelBytes,
                           half ? 0 : Shape::kPanelBytes, Shape::kEightRowsBytes, Shape::kSwizzle);
#pragma unroll
      for (int step = 0; step < kBlockKeys / 16; ++step) {
        WgmmaM64K16<T, kN, true, true>(state_.o[b], Advance(v, step * 2 * Shape::kEightRowsBytes),
                                       Advance(p, step * 256), true);
      }
    }
    WgmmaCommit();
    WgmmaWait<0>();
    HoldRegisters(state_.o);
  }

  const ChunkAttentionLaunch& args_;
  const TileHeader& header_;
  HopperShared<Shape>& shared_;
  const RingPosition<Shape> tile_begin_;
  const int thread_, group_, warp_, lane_;
  FewQueryState<Shape, kN> state_;
  QueryPlace places_[kPlacesHeld ? kColumns : 1];
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_FEW_H_
