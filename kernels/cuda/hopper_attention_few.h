#ifndef REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_FEW_H_
#define REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_FEW_H_

#include <cstdint>

#include "kernels/cuda/hopper_attention_queries.h"

// Hopper attention over a tile of at most kFewQueries queries, the usual tile of decoding. Queries
// are the N of both products, keys and then head dimensions the M, so that few queries cost little:
//   S^T [64 keys, N] = K Q^T         both K-major in shared memory
//   O^T [head_dim, N] += V^T P^T     V^T M-major as V lies; P^T N-major, written by the threads
// The two warpgroups take blocks of keys in turn, each with a state of its own, and the second
// hands its state to the first at the end. Device code only.
//
// A thread holds, of S^T and O^T, rows 16 w + g and 16 w + g + 8 and columns 8 i + 2 t and 8 i + 2
// t
// + 1 (w warp of the warpgroup, g = lane / 4, t = lane % 4). Column c = 2 i + e of its own is query
// 8 i + 2 t + e, in S^T and in O^T alike: maxima and factors stay in registers.

namespace refrain::kernels::cuda {

template <class Shape, int kN>
class FewQueries {
 public:
  using T = typename Shape::Element;
  static constexpr int kColumns = kN / 4;  // of one thread

  __device__ FewQueries(const ChunkAttentionLaunch& args, const TileHeader& header,
                        HopperShared<Shape>& shared, RingPosition<Shape> tile_begin)
      : args_(args),
        header_(header),
        shared_(shared),
        tile_begin_(tile_begin),
        group_(Uniform(static_cast<int>(threadIdx.x) / kWarpgroupThreads)),
        warp_(static_cast<int>(threadIdx.x) % kWarpgroupThreads / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  // The queries are in shared memory.
  __device__ void Run() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      m_[c] = MinusInfinity();
      n_[c] = 0.0f;
    }
#pragma unroll
    for (int b = 0; b < Shape::kDimBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) o_[b][i] = 0.0f;
    }
    const int32_t num_blocks = Uniform(header_.num_blocks);
    for (int32_t block = 0; block < num_blocks; ++block) {
      if (block % kWarpgroups == group_) {
        AddBlock(block);
      } else {
        PassBlock(shared_, tile_begin_, block);
      }
    }
    SumColumns();
    if (num_blocks > 1) JoinWarpgroups();
    if (group_ == 0) WriteStates();
  }

 private:
  __device__ int Query(int c) const { return c / 2 * 8 + lane_ % 4 * 2 + c % 2; }

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
    RaiseMaxima(s, factor);
    WriteWeights(s);

    ++at.count;
    const int v_unit = at.unit();
    BarrierWait(&shared_.full[v_unit], at.parity());
    AddValues(shared_.ring[v_unit], factor);
    LetGo(&shared_.empty[v_unit]);
  }

  __device__ void Mask(const BlockInfo& info, float (&s)[kN / 2]) const {
    const int row = 16 * warp_ + lane_ / 4;
    const KeyPlace keys[2] = {PlaceOfKey(args_, info, row), PlaceOfKey(args_, info, row + 8)};
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const QueryPlace query = PlaceOfQuery(args_, header_, Query(c));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& score = s[c / 2 * 4 + half * 2 + c % 2];
        score = Sees(args_, query, keys[half]) ? score : MinusInfinity();
      }
    }
  }

  // The block's maxima over all 64 keys into m_; `factor` is what the state so far is scaled by.
  __device__ void RaiseMaxima(const float (&s)[kN / 2], float (&factor)[kColumns]) {
    float(&columns)[4][kFewQueries] = shared_.columns[group_];
    float top[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int i = c / 2 * 4 + c % 2;
      top[c] = s[i] > s[i + 2] ? s[i] : s[i + 2];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, top[c], lanes);
        top[c] = other > top[c] ? other : top[c];
      }
    }
    if (lane_ < 4) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) columns[warp_][Query(c)] = top[c];
    }
    NamedBarrierSync(kWarpgroupBarrier + group_, kWarpgroupThreads);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float m = m_[c];
#pragma unroll
      for (int warp = 0; warp < 4; ++warp) {
        const float other = columns[warp][Query(c)];
        m = other > m ? other : m;
      }
      factor[c] = m > MinusInfinity() ? ExpTwo(m_[c] - m) : 1.0f;
      m_[c] = m;
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) n_[c] *= factor[c];
  }

  // P^T, as units of 8 keys by 8 queries (128 bytes): unit (keys 8 a, queries 8 b) is 8 b + a.
  __device__ void WriteWeights(const float (&s)[kN / 2]) {
    unsigned char* const weights = shared_.weights[group_];
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
      // Where nothing was seen yet m is -inf and every score too: weights 2^(-inf - 0) = 0.
      const float m0 = m_[2 * i] > MinusInfinity() ? m_[2 * i] : 0.0f;
      const float m1 = m_[2 * i + 1] > MinusInfinity() ? m_[2 * i + 1] : 0.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float p0 = ExpTwo(s[4 * i + 2 * half] - m0);
        const float p1 = ExpTwo(s[4 * i + 2 * half + 1] - m1);
        n_[2 * i] += p0;
        n_[2 * i + 1] += p1;
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
      for (int i = 0; i < kN / 2; ++i) o_[b][i] *= factor[i / 4 * 2 + i % 2];
    }
    const uint64_t p = SharedDescriptor(shared_.weights[group_], /*leading_bytes=*/128,
                                        /*stride_bytes=*/1024, Swizzle::kNone);
#pragma unroll
    for (int b = 0; b < Shape::kDimBlocks; ++b) HoldRegisters(o_[b]);
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
        WgmmaM64K16<T, kN, true, true>(o_[b], Advance(v, step * 2 * Shape::kEightRowsBytes),
                                       Advance(p, step * 256), true);
      }
    }
    WgmmaCommit();
    WgmmaWait<0>();
#pragma unroll
    for (int b = 0; b < Shape::kDimBlocks; ++b) HoldRegisters(o_[b]);
  }

  // n_ becomes the sum over all keys of the warpgroup.
  __device__ void SumColumns() {
    float(&columns)[4][kFewQueries] = shared_.columns[group_];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        n_[c] += __shfl_xor_sync(0xffffffffu, n_[c], lanes);
      }
    }
    if (lane_ < 4) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) columns[warp_][Query(c)] = n_[c];
    }
    NamedBarrierSync(kWarpgroupBarrier + group_, kWarpgroupThreads);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      n_[c] = (columns[0][Query(c)] + columns[1][Query(c)]) +
              (columns[2][Query(c)] + columns[3][Query(c)]);
    }
  }

  // The state of the second warpgroup goes into that of the first; the same thread of both holds
  // the same elements.
  __device__ void JoinWarpgroups() {
    auto* const handed = reinterpret_cast<float*>(shared_.queries + Shape::kFewQueryBytes) +
                         threadIdx.x % kWarpgroupThreads;
    if (group_ == 1) {
      if (lane_ < 4 && warp_ == 0) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          shared_.handed_m[Query(c)] = m_[c];
          shared_.handed_n[Query(c)] = n_[c];
        }
      }
#pragma unroll
      for (int b = 0; b < Shape::kDimBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < kN / 2; ++i) handed[(b * kN / 2 + i) * kWarpgroupThreads] = o_[b][i];
      }
    }
    NamedBarrierSync(kComputeBarrier, kComputeThreads);
    if (group_ == 1) return;
    float left[kColumns], right[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float m = shared_.handed_m[Query(c)], n = shared_.handed_n[Query(c)];
      const float top = m > m_[c] ? m : m_[c];
      const bool none = top == MinusInfinity();
      left[c] = none ? 1.0f : ExpTwo(m_[c] - top);
      right[c] = none ? 0.0f : ExpTwo(m - top);
      n_[c] = n_[c] * left[c] + n * right[c];
      m_[c] = top;
    }
#pragma unroll
    for (int b = 0; b < Shape::kDimBlocks; ++b) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        const int c = i / 4 * 2 + i % 2;
        o_[b][i] = o_[b][i] * left[c] + handed[(b * kN / 2 + i) * kWarpgroupThreads] * right[c];
      }
    }
  }

  __device__ void WriteStates() const {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const StateTarget target = TargetOf<Shape>(args_, PlaceOfQuery(args_, header_, Query(c)));
      if (target.o == nullptr) continue;
      const float factor = FactorOf(target, n_[c]);
#pragma unroll
      for (int b = 0; b < Shape::kDimBlocks; ++b) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int dim = b * 64 + 16 * warp_ + lane_ / 4 + 8 * half;
          if (dim < Shape::kHeadDim) {
            target.o[dim] = o_[b][c / 2 * 4 + half * 2 + c % 2] * factor;
          }
        }
      }
      if (target.mn != nullptr && lane_ < 4 && warp_ == 0) {
        target.mn[0] = m_[c];
        target.mn[1] = n_[c];
      }
    }
  }

  const ChunkAttentionLaunch& args_;
  const TileHeader& header_;
  HopperShared<Shape>& shared_;
  const RingPosition<Shape> tile_begin_;
  const int group_, warp_, lane_;
  float m_[kColumns];
  float n_[kColumns];  // of the thread's own keys until SumColumns
  float o_[Shape::kDimBlocks][kN / 2];
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_HOPPER_ATTENTION_FEW_H_
