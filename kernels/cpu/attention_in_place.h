#ifndef REFRAIN_KERNELS_CPU_ATTENTION_IN_PLACE_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_IN_PLACE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_lines_ahead.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/attention_tiles.h"

// The products of a segment for few rows (decode), over a level's vector type S: K and V are read
// where they lie and converted in registers; memory is the limit. Up to S::kTileRows rows, head_dim
// a multiple of S::kLanes. Include only from files that are compiled for one level.
namespace refrain::kernels::cpu {

template <class S>
class AttentionInPlace {
 public:
  static void Scores(const SegmentArgs& a, LinesAhead& ahead) {
    ForPieces(a, a.begin, a.hi, [&](const KeyPiece& piece, int token, int32_t key, int count) {
      const std::byte* const k = piece.k + a.head_offset;
      const int64_t c = a.chunk_tokens;
      for (int i = 0; i < count; i += V * L) {
        const int vectors = Least(V, DivideUp(count - i, L));
        const int t = token + i;
        float* const scores = a.scores + (key + i - a.segment_begin);
        switch (a.type) {
          case KvElementType::kF32:
            Dispatch<ScoreF32>(a.num_rows, vectors, a.q, a.q_stride, a.head_dim,
                               reinterpret_cast<const float*>(k) + t, c, scores,
                               ahead.reader<float>(), KeepNothing{});
            break;
          case KvElementType::kF16:
            Dispatch<ScoreF16>(a.num_rows, vectors, a.q, a.q_stride, a.head_dim,
                               reinterpret_cast<const uint16_t*>(k) + t, c, scores,
                               ahead.reader<uint16_t>(), KeepNothing{});
            break;
          case KvElementType::kBF16Pairs:
            Dispatch<ScorePairs>(a.num_rows, vectors, a.q, a.q_stride, a.head_dim,
                                 reinterpret_cast<const uint16_t*>(k) + 2 * t, 2 * c, scores,
                                 ahead.reader<uint16_t>());
            break;
        }
      }
    });
  }

  static void Values(const SegmentArgs& a, LinesAhead& ahead) {
    const int64_t d = a.head_dim;
    ForPieces(a, a.begin, a.hi, [&](const KeyPiece& piece, int token, int32_t key, int count) {
      const float* const p = a.scores + (key - a.segment_begin);
      const std::byte* const v = piece.v + a.head_offset;
      for (int i = 0; i < d; i += V * L) {
        const int vectors = Least(V, (static_cast<int>(d) - i) / L);
        switch (a.type) {
          case KvElementType::kF32:
            Dispatch<ValueF32>(a.num_rows, vectors, p, count,
                               reinterpret_cast<const float*>(v) + token * d + i, d, a.o + i,
                               a.o_stride, ahead.reader<float>(), KeepNothing{});
            break;
          case KvElementType::kF16:
            Dispatch<ValueF16>(a.num_rows, vectors, p, count,
                               reinterpret_cast<const uint16_t*>(v) + token * d + i, d, a.o + i,
                               a.o_stride, ahead.reader<uint16_t>(), KeepNothing{});
            break;
          case KvElementType::kBF16Pairs:
            Dispatch<ValuePairs>(a.num_rows, vectors, p, token, count,
                                 reinterpret_cast<const uint16_t*>(v) + 2 * i, 2 * d, a.o + i,
                                 a.o_stride, ahead.reader<uint16_t>());
            break;
        }
      }
    });
  }

 private:
  static constexpr int L = S::kLanes;
  static constexpr int R = S::kTileRows;
  static constexpr int V = S::kTileVectors;

  template <int A, int B>
  using ScoreF32 = ScoreTile<S, float, LinesAhead::Reader<float>, KeepNothing, A, B>;
  template <int A, int B>
  using ScoreF16 = ScoreTile<S, uint16_t, LinesAhead::Reader<uint16_t>, KeepNothing, A, B>;
  template <int A, int B>
  using ScorePairs = ScoreTilePairs<S, LinesAhead::Reader<uint16_t>, A, B>;
  template <int A, int B>
  using ValueF32 = ValueTile<S, float, LinesAhead::Reader<float>, KeepNothing, A, B>;
  template <int A, int B>
  using ValueF16 = ValueTile<S, uint16_t, LinesAhead::Reader<uint16_t>, KeepNothing, A, B>;
  template <int A, int B>
  using ValuePairs = ValueTilePairs<S, LinesAhead::Reader<uint16_t>, A, B>;

  template <template <int, int> class Tile, class... Args>
  static void Dispatch(int rows, int vectors, Args... args) {
    DispatchTile<Tile, R, V>(rows, vectors, args...);
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_IN_PLACE_H_
