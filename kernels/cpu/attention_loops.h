#ifndef REFRAIN_KERNELS_CPU_ATTENTION_LOOPS_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_LOOPS_H_

#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/simd_math.h"

// AttentionKernels over a level's vector type. Include only from files that are compiled for one
// level.
//
// A segment is worked in three passes: all scores, softmax, all values. Few rows (decode) read K
// and V where they lie and convert in registers: memory is the limit. More rows (prefill, shared
// chunks) first widen tiles of 64 keys into f32 scratch, which closes the gaps of part-full chunks
// and costs little beside the products. Both run the same register tiles, so a row comes out the
// same.
namespace refrain::kernels::cpu {

template <class S>
class AttentionLoops {
 public:
  static void Segment(const SegmentArgs& a) {
    for (int r = 0; r < a.num_rows; ++r) {
      for (int64_t i = 0; i < a.o_stride; i += L) S::Store(a.o + r * a.o_stride + i, S::Zero());
    }
    // Direct reading works on whole vectors of output elements.
    if (a.num_rows <= R && a.head_dim % L == 0) {
      ScoresInPlace(a);
      SoftmaxRows(a);
      ValuesInPlace(a);
    } else {
      TiledScores(a);
      SoftmaxRows(a);
      TiledValues(a);
    }
  }

  static void Merge(SoftmaxState& left, float* left_o, const SoftmaxState& right,
                    const float* right_o, int head_dim) {
    if (right.n == 0.0f) return;
    if (left.n == 0.0f) {
      left = right;
      ForVectors(head_dim, [&](int i) { S::Store(left_o + i, S::Load(right_o + i)); });
      return;
    }
    const float m = left.m > right.m ? left.m : right.m;
    const F left_scale = Exp<S>(S::Set1(left.m - m));
    const F right_scale = Exp<S>(S::Set1(right.m - m));
    float n[L];
    S::Store(n, S::Fma(S::Set1(left.n), left_scale, S::Mul(S::Set1(right.n), right_scale)));
    left = {m, n[0]};
    ForVectors(head_dim, [&](int i) {
      const F scaled = S::Mul(S::Load(right_o + i), right_scale);
      S::Store(left_o + i, S::Fma(S::Load(left_o + i), left_scale, scaled));
    });
  }

  static void Finish(const SoftmaxState& state, const float* o, float* out, int head_dim) {
    const F factor = S::Set1(state.n == 0.0f ? 0.0f : 1.0f / state.n);
    const bool empty = state.n == 0.0f;
    int i = 0;
    for (; i + L <= head_dim; i += L) {
      S::Store(out + i, empty ? S::Zero() : S::Mul(S::Load(o + i), factor));
    }
    if (i < head_dim) {
      S::StoreN(out + i, empty ? S::Zero() : S::Mul(S::Load(o + i), factor), head_dim - i);
    }
  }

  static void Scale(const float* x, float scale, float* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = x[i] * scale;
  }

  static constexpr AttentionKernels kTable = {
      .segment = Segment, .merge = Merge, .finish = Finish, .scale = Scale};

 private:
  using F = typename S::F;
  static constexpr int L = S::kLanes;
  static constexpr int R = S::kTileRows;
  static constexpr int V = S::kTileVectors;
  // Softmax goes over this many vectors at once, counted from the segment's begin.
  static constexpr int kSoftmaxKeys = 4 * L;

  static int Least(int a, int b) { return a < b ? a : b; }
  static int Most(int a, int b) { return a > b ? a : b; }
  static int DivideUp(int a, int b) { return (a + b - 1) / b; }
  static float MinusInfinity() { return -__builtin_inff(); }

  template <class Fn>
  static void ForVectors(int n, const Fn& fn) {  // rows are padded to whole vectors
    for (int i = 0; i < n; i += L) fn(i);
  }

  // Calls fn(first_row, rows) on register blocks of nearly equal size.
  template <class Fn>
  static void ForRowBlocks(int num_rows, const Fn& fn) {
    const int blocks = DivideUp(num_rows, R);
    for (int b = 0, row = 0; b < blocks; ++b) {
      const int rows = DivideUp(num_rows - row, blocks - b);
      fn(row, rows);
      row += rows;
    }
  }

  // Calls Tile<..., rows, vectors>::Run(args...) for run-time rows in [1, R], vectors in [1, V].
  template <template <int, int> class Tile, int RowCount = R, int VectorCount = V, class... Args>
  static void Dispatch(int rows, int vectors, Args... args) {
    if constexpr (RowCount > 1) {
      if (rows < RowCount) {
        return Dispatch<Tile, RowCount - 1, VectorCount>(rows, vectors, args...);
      }
    }
    if constexpr (VectorCount > 1) {
      if (vectors < VectorCount) {
        return Dispatch<Tile, RowCount, VectorCount - 1>(rows, vectors, args...);
      }
    }
    Tile<RowCount, VectorCount>::Run(args...);
  }

  template <int A, int B>
  using ScoreWidened = ScoreTile<S, float, false, A, B>;
  template <int A, int B>
  using ScoreF32 = ScoreTile<S, float, true, A, B>;
  template <int A, int B>
  using ScoreF16 = ScoreTile<S, uint16_t, true, A, B>;
  template <int A, int B>
  using ScorePairs = ScoreTilePairs<S, A, B>;
  template <int A, int B>
  using ValueWidened = ValueTile<S, float, false, A, B>;
  template <int A, int B>
  using ValueF32 = ValueTile<S, float, true, A, B>;
  template <int A, int B>
  using ValueF16 = ValueTile<S, uint16_t, true, A, B>;
  template <int A, int B>
  using ValuePairs = ValueTilePairs<S, A, B>;

  // --- softmax ---

  // Scores to weights exp(s - m), in place; weights of unseen keys in [begin, hi) become 0.
  static void SoftmaxRows(const SegmentArgs& a) {
    for (int r = 0; r < a.num_rows; ++r) {
      const int begin = a.begin - a.segment_begin;
      const int limit = Least(a.row_limits[r], a.hi) - a.segment_begin;
      const int hi = a.hi - a.segment_begin;
      float* const scores = a.scores + r * static_cast<int64_t>(kScoreStride);
      a.states[r] = limit <= begin ? SoftmaxState{MinusInfinity(), 0.0f}
                                   : SoftmaxRow(a, r, begin, limit, scores);
      if (a.states[r].n == 0.0f) {
        for (int i = begin; i < hi; ++i) scores[i] = 0.0f;
        continue;
      }
      const int done = DivideUp(limit, kSoftmaxKeys) * kSoftmaxKeys;
      for (int i = done; i < hi; ++i) scores[i] = 0.0f;
    }
  }

  static SoftmaxState SoftmaxRow(const SegmentArgs& a, int row, int begin, int limit,
                                 float* scores) {
    // Whole groups of vectors: what is around the row's keys is -infinity.
    const int first = begin / kSoftmaxKeys * kSoftmaxKeys;
    const int last = DivideUp(limit, kSoftmaxKeys) * kSoftmaxKeys;
    for (int i = first; i < begin; ++i) scores[i] = MinusInfinity();
    for (int i = limit; i < last; ++i) scores[i] = MinusInfinity();
    if (a.row_oldest != nullptr) {
      const F unseen = S::Set1(MinusInfinity());
      for (int i = first; i < last; i += L) {
        S::Store(scores + i,
                 S::WhereAbove(a.positions + i, a.row_oldest[row], S::Load(scores + i), unseen));
      }
    }
    F max[4];
    for (int v = 0; v < 4; ++v) max[v] = S::Load(scores + first + v * L);
    for (int i = first + kSoftmaxKeys; i < last; i += kSoftmaxKeys) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) max[v] = S::Max(max[v], S::Load(scores + i + v * L));
    }
    const float m = S::ReduceMax(S::Max(S::Max(max[0], max[1]), S::Max(max[2], max[3])));
    if (m == MinusInfinity()) return {m, 0.0f};

    const F shift = S::Set1(m);
    F sum[4] = {S::Zero(), S::Zero(), S::Zero(), S::Zero()};
    for (int i = first; i < last; i += kSoftmaxKeys) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const F weight = Exp<S>(S::Sub(S::Load(scores + i + v * L), shift));
        S::Store(scores + i + v * L, weight);
        sum[v] = S::Add(sum[v], weight);
      }
    }
    return {m, S::ReduceAdd(S::Add(S::Add(sum[0], sum[1]), S::Add(sum[2], sum[3])))};
  }

  // --- few rows: K and V where they lie ---

  // Calls fn(piece, token, key, count) on the parts of pieces that lie in [begin, end), in order.
  template <class Fn>
  static void ForPieces(const SegmentArgs& a, int32_t begin, int32_t end, const Fn& fn) {
    const KeyPiece* piece = a.pieces;
    while (piece->begin + piece->count <= begin) ++piece;
    for (int32_t key = begin; key < end; ++piece) {
      const int32_t skipped = key - piece->begin;
      const int32_t count = Least(piece->count - skipped, end - key);
      fn(*piece, piece->token + skipped, key, count);
      key += count;
    }
  }

  // Bytes from one piece's keys (or values) to those of the piece that is read next: the one behind
  // it, after the last of the segment `wrap`.
  static int64_t Ahead(const SegmentArgs& a, const KeyPiece& piece, std::byte const* KeyPiece::*kv,
                       const std::byte* wrap) {
    const bool last = piece.begin + piece.count >= a.hi;
    const std::byte* const next = last ? wrap : (&piece + 1)->*kv;
    return next == nullptr ? 0 : next - piece.*kv;
  }

  // The keys that the next segment begins with, or null.
  static const std::byte* KeysBehind(const SegmentArgs& a) {
    const KeyPiece* piece = a.pieces;
    while (piece < a.pieces_end && piece->begin + piece->count <= a.hi) ++piece;
    return piece < a.pieces_end ? piece->k : nullptr;
  }

  static void ScoresInPlace(const SegmentArgs& a) {
    ForPieces(a, a.begin, a.hi, [&](const KeyPiece& piece, int token, int32_t key, int count) {
      const std::byte* const k = piece.k + a.head_offset;
      const std::byte* const next = k + Ahead(a, piece, &KeyPiece::k, a.pieces->v);
      for (int i = 0; i < count; i += V * L) {
        const int vectors = Least(V, DivideUp(count - i, L));
        const int t = token + i;
        float* const scores = a.scores + (key + i - a.segment_begin);
        switch (a.type) {
          case KvElementType::kF32:
            Dispatch<ScoreF32>(a.num_rows, vectors, a.q, a.q_stride, a.head_dim,
                               reinterpret_cast<const float*>(k) + t, int64_t{a.chunk_tokens},
                               scores, reinterpret_cast<const float*>(next) + t);
            break;
          case KvElementType::kF16:
            Dispatch<ScoreF16>(a.num_rows, vectors, a.q, a.q_stride, a.head_dim,
                               reinterpret_cast<const uint16_t*>(k) + t, int64_t{a.chunk_tokens},
                               scores, reinterpret_cast<const uint16_t*>(next) + t);
            break;
          case KvElementType::kBF16Pairs:
            Dispatch<ScorePairs>(a.num_rows, vectors, a.q, a.q_stride, a.head_dim,
                                 reinterpret_cast<const uint16_t*>(k) + 2 * t,
                                 int64_t{2} * a.chunk_tokens, scores,
                                 reinterpret_cast<const uint16_t*>(next) + 2 * t);
            break;
        }
      }
    });
  }

  static void ValuesInPlace(const SegmentArgs& a) {
    const int64_t d = a.head_dim;
    const std::byte* const wrap = KeysBehind(a);
    ForPieces(a, a.begin, a.hi, [&](const KeyPiece& piece, int token, int32_t key, int count) {
      const float* const p = a.scores + (key - a.segment_begin);
      const std::byte* const v = piece.v + a.head_offset;
      const std::byte* const next = v + Ahead(a, piece, &KeyPiece::v, wrap);
      for (int i = 0; i < d; i += V * L) {
        const int vectors = Least(V, (static_cast<int>(d) - i) / L);
        switch (a.type) {
          case KvElementType::kF32:
            Dispatch<ValueF32>(a.num_rows, vectors, p, count,
                               reinterpret_cast<const float*>(v) + token * d + i, d, a.o + i,
                               a.o_stride, reinterpret_cast<const float*>(next) + i);
            break;
          case KvElementType::kF16:
            Dispatch<ValueF16>(a.num_rows, vectors, p, count,
                               reinterpret_cast<const uint16_t*>(v) + token * d + i, d, a.o + i,
                               a.o_stride, reinterpret_cast<const uint16_t*>(next) + i);
            break;
          case KvElementType::kBF16Pairs:
            Dispatch<ValuePairs>(a.num_rows, vectors, p, token, count,
                                 reinterpret_cast<const uint16_t*>(v) + 2 * i, 2 * d, a.o + i,
                                 a.o_stride, reinterpret_cast<const uint16_t*>(next) + 2 * i);
            break;
        }
      }
    });
  }

  // --- many rows: tiles of widened keys and values ---

  // Keys that are read of the tile that begins at key index `tile`.
  struct TileRange {
    int32_t begin, end;
  };
  static TileRange Clip(const SegmentArgs& a, int32_t tile) {
    return {Most(tile, a.begin), Least(tile + kTileKeys, a.hi)};
  }

  // Whether no row sees any key of the tile.
  static bool OutsideWindow(const SegmentArgs& a, TileRange range) {
    if (a.row_oldest == nullptr) return false;
    int32_t oldest = a.row_oldest[0];
    for (int r = 1; r < a.num_rows; ++r) oldest = Least(oldest, a.row_oldest[r]);
    for (int32_t key = range.begin; key < range.end; ++key) {
      if (a.positions[key - a.segment_begin] > oldest) return false;
    }
    return true;
  }

  // Behind the last key of the tile that the rows [row, row + rows) see.
  static int32_t BlockEnd(const SegmentArgs& a, TileRange range, int row, int rows) {
    return Least(range.end, a.row_limits[row + rows - 1]);
  }

  template <class Fn>
  static void ForTiles(const SegmentArgs& a, const Fn& fn) {
    for (int32_t tile = a.segment_begin; tile < a.hi; tile += kTileKeys) {
      const TileRange range = Clip(a, tile);
      if (range.begin < range.end) fn(tile, range, OutsideWindow(a, range));
    }
  }

  // What the tile behind `range` is widened from, fetched in equal parts while register blocks of
  // this one are worked on. Exact for chunks of up to kTileKeys tokens, a fair guess beyond.
  class TileAhead {
   public:
    // After the segment's last tile it is what `wrap` points to (may be null).
    TileAhead(const SegmentArgs& a, TileRange range, std::byte const* KeyPiece::*kv,
              const std::byte* wrap) {
      const std::byte* next = wrap;
      if (range.end < a.hi) {
        const KeyPiece* piece = a.pieces;
        while (piece->begin + piece->count <= range.end) ++piece;
        next = piece->*kv;
      }
      if (next == nullptr) return;
      const int element_bytes = a.type == KvElementType::kF32 ? 4 : 2;
      next_ = reinterpret_cast<const char*>(next) + a.head_offset;
      end_ = next_ + Least(a.chunk_tokens, kTileKeys) * a.head_dim * element_bytes;
      step_ = (end_ - next_) / DivideUp(a.num_rows, R) + 64;
    }

    void FetchPart() {
      const char* const stop = end_ - next_ < step_ ? end_ : next_ + step_;
      for (; next_ < stop; next_ += 64) __builtin_prefetch(next_, 0, 2);
    }

   private:
    const char* next_ = nullptr;
    const char* end_ = nullptr;
    int64_t step_ = 0;
  };

  static void TiledScores(const SegmentArgs& a) {
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      float* const scores = a.scores + (tile - a.segment_begin);
      if (outside) {
        for (int r = 0; r < a.num_rows; ++r) {
          float* const row = scores + r * static_cast<int64_t>(kScoreStride);
          for (int i = 0; i < kTileKeys; ++i) row[i] = MinusInfinity();
        }
        return;
      }
      WidenKeys(a, tile, range);
      TileAhead ahead(a, range, &KeyPiece::k, a.pieces->v);
      ForRowBlocks(a.num_rows, [&](int row, int rows) {
        ahead.FetchPart();
        const int32_t end = BlockEnd(a, range, row, rows);
        for (int32_t i = 0; i < end - tile; i += V * L) {
          const int vectors = Least(V, DivideUp(end - tile - i, L));
          Dispatch<ScoreWidened>(rows, vectors, a.q + row * a.q_stride, a.q_stride, a.head_dim,
                                 static_cast<const float*>(a.k_tile) + i, int64_t{kKeyTileStride},
                                 scores + row * static_cast<int64_t>(kScoreStride) + i,
                                 static_cast<const float*>(nullptr));
        }
      });
    });
  }

  static void TiledValues(const SegmentArgs& a) {
    ForTiles(a, [&](int32_t tile, TileRange range, bool outside) {
      if (outside) return;  // all weights are 0
      WidenValues(a, tile, range);
      const int skip = range.begin - tile;
      TileAhead ahead(a, range, &KeyPiece::v, KeysBehind(a));
      ForRowBlocks(a.num_rows, [&](int row, int rows) {
        ahead.FetchPart();
        const int keys = BlockEnd(a, range, row, rows) - range.begin;
        if (keys <= 0) return;
        const float* const p =
            a.scores + row * static_cast<int64_t>(kScoreStride) + (range.begin - a.segment_begin);
        for (int i = 0; i < a.o_stride; i += V * L) {
          const int vectors = Least(V, DivideUp(a.head_dim - i, L));
          if (vectors <= 0) break;
          Dispatch<ValueWidened>(rows, vectors, p, keys,
                                 static_cast<const float*>(a.v_tile) + skip * a.o_stride + i,
                                 a.o_stride, a.o + row * a.o_stride + i, a.o_stride,
                                 static_cast<const float*>(nullptr));
        }
      });
    });
  }

  // k_tile[i][key - tile] = K, for the keys in `range`. Vectors may run over the end of a piece;
  // the next piece overwrites what they leave, or nobody reads it.
  static void WidenKeys(const SegmentArgs& a, int32_t tile, TileRange range) {
    ForPieces(a, range.begin, range.end,
              [&](const KeyPiece& piece, int token, int32_t key, int count) {
                const std::byte* const k = piece.k + a.head_offset;
                const auto* const k32 = reinterpret_cast<const float*>(k) + token;
                const auto* const k16 = reinterpret_cast<const uint16_t*>(k);
                float* const out = a.k_tile + (key - tile);
                switch (a.type) {
                  case KvElementType::kF32:
                    return WidenKeyRows(a, k32, count, out);
                  case KvElementType::kF16:
                    return WidenKeyRows(a, k16 + token, count, out);
                  case KvElementType::kBF16Pairs:
                    return WidenKeyPairs(a, k16 + 2 * token, count, out);
                }
              });
  }

  template <class E>
  static void WidenKeyRows(const SegmentArgs& a, const E* k, int count, float* out) {
    for (int i = 0; i < a.head_dim; ++i) {
      for (int j = 0; j < count; j += L) {
        S::Store(out + i * kKeyTileStride + j, LoadAs<S>(k + i * a.chunk_tokens + j));
      }
    }
  }

  static void WidenKeyPairs(const SegmentArgs& a, const uint16_t* k, int count, float* out) {
    for (int i = 0; i < a.head_dim; i += 2) {
      for (int j = 0; j < count; j += L) {
        F even, odd;
        S::LoadPairs(k + (i / 2 * a.chunk_tokens + j) * 2, even, odd);
        S::Store(out + i * kKeyTileStride + j, even);
        S::Store(out + (i + 1) * kKeyTileStride + j, odd);
      }
    }
  }

  // v_tile[key - tile][:] = V, for the keys in `range`; elements from head_dim to the next whole
  // vector are 0.
  static void WidenValues(const SegmentArgs& a, int32_t tile, TileRange range) {
    ForPieces(a, range.begin, range.end,
              [&](const KeyPiece& piece, int token, int32_t key, int count) {
                const std::byte* const v = piece.v + a.head_offset;
                const int64_t d = a.head_dim;
                const auto* const v32 = reinterpret_cast<const float*>(v) + token * d;
                const auto* const v16 = reinterpret_cast<const uint16_t*>(v);
                float* const out = a.v_tile + (key - tile) * a.o_stride;
                switch (a.type) {
                  case KvElementType::kF32:
                    return WidenValueRows(a, v32, count, out);
                  case KvElementType::kF16:
                    return WidenValueRows(a, v16 + token * d, count, out);
                  case KvElementType::kBF16Pairs:
                    return WidenValuePairs(a, v16, token, count, out);
                }
              });
  }

  static F LoadFirst(const float* p, int n) { return S::LoadN(p, n); }
  static F LoadFirst(const uint16_t* p, int n) { return S::LoadF16N(p, n); }

  template <class E>
  static void WidenValueRows(const SegmentArgs& a, const E* v, int count, float* out) {
    const int d = a.head_dim;
    for (int j = 0; j < count; ++j, v += d, out += a.o_stride) {
      int i = 0;
      for (; i + L <= d; i += L) S::Store(out + i, LoadAs<S>(v + i));
      if (i < d) S::Store(out + i, LoadFirst(v + i, d - i));
    }
  }

  static void WidenValuePairs(const SegmentArgs& a, const uint16_t* v, int token, int count,
                              float* out) {
    const int d = a.head_dim;
    const int end = token + count;
    // Both tokens of a pair at once; the first and the last may be half outside.
    for (int t = token - token % 2; t < end; t += 2) {
      const uint16_t* const pairs = v + static_cast<int64_t>(t) * d;
      float* const row = out + (t - token) * a.o_stride;
      for (int i = 0; i < d; i += L) {
        F even, odd;
        if (i + L <= d) {
          S::LoadPairs(pairs + 2 * i, even, odd);
        } else {
          S::LoadPairsN(pairs + 2 * i, d - i, even, odd);
        }
        if (t >= token) S::Store(row + i, even);
        if (t + 1 < end) S::Store(row + a.o_stride + i, odd);
      }
    }
  }
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_LOOPS_H_
