#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MANY_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MANY_H_

#include <cstdint>

#include "kernels/cuda/hopper_attention_queries.h"

// Hopper attention over a tile of more than kFewQueries queries: rows of a prefill, or a run that
// many sequences share. Queries are the M of both products, 64 for each warpgroup, and both
// warpgroups go through all blocks of keys:
//   S [64, 64 keys] = Q K^T         Q in registers (head_dim 256: shared memory), K K-major
//   O [64, head_dim] += P V         P in registers as S came out, V N-major as it lies
// A query's scores are in the four threads of a quad, so nothing of the softmax leaves the warp.
// Causal by order of computation: each row sees keys up to its own. Device code only.
//
// A thread holds rows 16 w + g and 16 w + g + 8 (w warp of the warpgroup, g = lane / 4) and columns
// 8 i + 2 t and 8 i + 2 t + 1 (t = lane % 4) of S and O.

namespace refrain::kernels::cuda {

template <class Shape>
class ManyQueries {
 public:
  using T = typename Shape::Element;
  static constexpr bool kQueriesInRegisters = Shape::kHeadDim <= 128;
  // O is cut along the head dimension into products of at most 128 columns.
  static constexpr int kOutN = Shape::kHeadDim <= 128 ? Shape::kHeadDim : Shape::kHeadDim / 2;
  static constexpr int kOuts = Shape::kHeadDim / kOutN;
  static_assert(kOutN % Shape::kPanel == 0);

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
      m_[half] = MinusInfinity();
      n_[half] = 0.0f;
    }
#pragma unroll
    for (int out = 0; out < kOuts; ++out) {
#pragma unroll
      for (int i = 0; i < kOutN / 2; ++i) o_[out][i] = 0.0f;
    }
    const int32_t num_blocks = Uniform(header_.num_blocks);
    if (group_ * 64 < Uniform(header_.num_queries)) {
      if constexpr (kQueriesInRegisters) LoadFragments();
      if constexpr (kQueriesInRegisters) {
        AddBlocks(num_blocks);
        UseFragments();
      } else {
        for (int32_t block = 0; block < num_blocks; ++block) AddBlock(block);
      }
      WriteStates();
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
      ToWeights(s, p);
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
    ToWeights(s, p);
    ++at.count;
    const int v_unit = at.unit();
    BarrierWait(&shared_.full[v_unit], at.parity());
    AddValues(shared_.ring[v_unit], p);
    LetGo(&shared_.empty[v_unit]);
  }

  // Raises the state's maxima; o is scaled with them.
  __device__ void ToWeights(float (&s)[kBlockKeys / 2], uint32_t (&p)[kBlockKeys / 16][4]) {
    float factor[2];
    const float scale = ScoreScale(args_);
    RaiseMaxima(s, scale, factor);
    MakeWeights(s, scale, p);
    // Maxima rise seldom.
    if (__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f) == 0) return;
#pragma unroll
    for (int out = 0; out < kOuts; ++out) {
#pragma unroll
      for (int i = 0; i < kOutN / 2; ++i) o_[out][i] *= factor[i / 2 % 2];
    }
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

  __device__ void RaiseMaxima(const float (&s)[kBlockKeys / 2], float scale, float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m = MinusInfinity();
#pragma unroll
      for (int i = 0; i < kBlockKeys / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          m = fmaxf(m, s[4 * i + 2 * half + e]);
        }
      }
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, lanes));
      }
      m *= scale;
      m = m_[half] > m ? m_[half] : m;
      factor[half] = m > MinusInfinity() ? ExpTwo(m_[half] - m) : 1.0f;
      m_[half] = m;
      n_[half] *= factor[half];
    }
  }

  // P as the A operand of the second product: where S came out is where P goes in.
  __device__ void MakeWeights(const float (&s)[kBlockKeys / 2], float scale,
                              uint32_t (&p)[kBlockKeys / 16][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float m = m_[half] > MinusInfinity() ? m_[half] : 0.0f;  // all scores are -inf then
#pragma unroll
      for (int i = 0; i < kBlockKeys / 8; ++i) {
        const float p0 = ExpTwo(fmaf(s[4 * i + 2 * half], scale, -m));
        const float p1 = ExpTwo(fmaf(s[4 * i + 2 * half + 1], scale, -m));
        n_[half] += p0 + p1;
        p[i / 2][i % 2 * 2 + half] = PackPair<T>(p0, p1);
      }
    }
  }

  __device__ void AddValues(const unsigned char* values, uint32_t (&p)[kBlockKeys / 16][4]) {
    HoldRegisters(o_);
    HoldRegisters(p);
    WgmmaFence();
#pragma unroll
    for (int out = 0; out < kOuts; ++out) {
      const uint64_t v =
          SharedDescriptor(values + out * kOutN / Shape::kPanel * Shape::kPanelBytes,
                           Shape::kPanelBytes, Shape::kEightRowsBytes, Shape::kSwizzle);
#pragma unroll
      for (int step = 0; step < kBlockKeys / 16; ++step) {
        WgmmaM64K16<T, kOutN, true>(o_[out], p[step], Advance(v, step * 2 * Shape::kEightRowsBytes),
                                    true);
      }
    }
    WgmmaCommit();
    WgmmaWait<0>();
    HoldRegisters(o_);
    HoldRegisters(p);
  }

  __device__ void WriteStates() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        n_[half] += __shfl_xor_sync(0xffffffffu, n_[half], lanes);
      }
      // Asked for again: kept, it would be registers in every block.
      const StateTarget target = TargetOf<Shape>(args_, PlaceOfQuery(args_, header_, Query(half)));
      if (target.o == nullptr) continue;
      const float factor = FactorOf(target, n_[half]);
#pragma unroll
      for (int out = 0; out < kOuts; ++out) {
#pragma unroll
        for (int i = 0; i < kOutN / 8; ++i) {
          const int dim = out * kOutN + 8 * i + lane_ % 4 * 2;
          *reinterpret_cast<float2*>(target.o + dim) = make_float2(
              o_[out][4 * i + 2 * half] * factor, o_[out][4 * i + 2 * half + 1] * factor);
        }
      }
      if (target.mn != nullptr && lane_ % 4 == 0) {
        target.mn[0] = m_[half];
        target.mn[1] = n_[half];
      }
    }
  }

  const ChunkAttentionLaunch& args_;
  const TileHeader& header_;
  HopperShared<Shape>& shared_;
  const RingPosition<Shape> tile_begin_;
  const int thread_, group_, warp_, lane_;
  QueryPlace queries_[2];
  float m_[2];
  float n_[2];  // of the thread's own keys until WriteStates
  uint32_t q_[kQueriesInRegisters ? Shape::kSteps : 1][4];
  float o_[kOuts][kOutN / 2];
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_MANY_H_
