#ifndef REFRAIN_KERNELS_CPU_ATTENTION_LINES_AHEAD_H_
#define REFRAIN_KERNELS_CPU_ATTENTION_LINES_AHEAD_H_

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/attention_pieces.h"
#include "kernels/cpu/prefetch.h"

// Include only from files that are compiled for one level.
namespace refrain::kernels::cpu {
namespace {

// Asks a near cache for what a segment of few rows reads in place, line by line in the
// order of reading and one piece's keys ahead: as many lines as are read meanwhile, so that memory
// always has something to do and is asked for nothing that stays unread in part-full chunks. The
// hardware does not see that one chunk follows another. Behind the segment's own lines are the keys
// of the piece that the next segment or task begins with (of at most kTileKeys tokens): those of
// its own first piece have been asked for likewise.
//
// Sink is told each address; which cache is the better one, NearestFastCache (isa.h) says.
template <class Sink>
class LinesAheadTo {
 public:
  explicit LinesAheadTo(const SegmentArgs& a)
      : a_(a),
        piece_(a.pieces),
        key_bytes_(a.type == KvElementType::kF16 ? 2 : 4),
        key_rows_(a.type == KvElementType::kBF16Pairs ? a.head_dim / 2 : a.head_dim),
        value_tokens_(a.type == KvElementType::kBF16Pairs ? 2 : 1) {
    NextPiece();
  }
  LinesAheadTo(const LinesAheadTo&) = delete;
  LinesAheadTo& operator=(const LinesAheadTo&) = delete;

  // What a tile asks for, step by step of its inner loop, which reads kElements of E each. Where
  // the lines end and which come next is settled before: a call out of that loop, as rare as it may
  // be, would cost it the registers of its sums.
  template <class E>
  class Share {
   public:
    Share(const char* p, int64_t step) : p_(p), step_(step) {}

    template <int kElements>
    [[gnu::always_inline]] void Ask(int i) const {
      constexpr int kLines = (kElements * static_cast<int>(sizeof(E)) + 63) / 64;
#pragma GCC unroll 8
      for (int j = 0; j < kLines; ++j) Sink::Ask(p_ + i * step_ + int64_t{j} * 64);
    }

   private:
    const char* p_;
    int64_t step_;  // bytes; 0: something harmless, again and again
  };

  // As many lines as `bytes` for each of `steps` steps.
  template <class E>
  Share<E> Take(int64_t bytes, int64_t steps) {
    const int64_t lines = (steps * bytes + 63) / 64;
    if (in_row_ >= lines && region_ != Region::kNone) [[likely]] {
      const Share<E> share(next_, bytes);
      next_ += lines * 64;
      in_row_ -= lines;
      if (in_row_ == 0) NextRow();
      return share;
    }
    // Here and now: they do not lie behind one another.
    for (int64_t i = 0; i < lines && region_ != Region::kNone; ++i) AskForOne();
    return Share<E>(reinterpret_cast<const char*>(this), 0);
  }

  // All that have not been asked for.
  void AskForRest() {
    while (region_ != Region::kNone) AskForOne();
  }

  // What tiles are given: each takes its share when it begins.
  template <class E>
  struct Reader {
    LinesAheadTo* lines;

    template <int kElements>
    Share<E> Begin(int steps) const {
      return lines->template Take<E>(kElements * static_cast<int64_t>(sizeof(E)), steps);
    }
  };
  template <class E>
  Reader<E> reader() {
    return {this};
  }

 private:
  enum class Region : uint8_t { kKeys, kValues, kBehind, kNone };

  void AskForOne() {
    Sink::Ask(next_);
    next_ += 64;
    if (--in_row_ == 0) NextRow();
  }

  void NextRow() {
    if (--rows_ > 0) {
      row_ += row_step_;
      Begin(row_, row_lines_);
      return;
    }
    NextPiece();
  }

  void Begin(const char* p, int64_t lines) {
    assert(lines > 0);
    next_ = row_ = p;
    in_row_ = row_lines_ = lines;
  }

  // The lines from the one that holds `p` on.
  void BeginBytes(const char* p, int64_t bytes) {
    const auto over = static_cast<int64_t>(reinterpret_cast<uintptr_t>(p) % 64);
    Begin(p - over, (over + bytes + 63) / 64);
  }

  // The region behind this one: pieces twice, keys and then values. The keys of the first piece are
  // behind us when we begin.
  [[gnu::noinline]] void NextPiece() {
    if (region_ == Region::kKeys || region_ == Region::kValues) {
      const bool more = piece_->begin + piece_->count < a_.hi;
      if (more) {
        ++piece_;
      } else {
        piece_ = a_.pieces;
        region_ = region_ == Region::kKeys ? Region::kValues : Region::kBehind;
      }
      if (region_ == Region::kKeys) return BeginKeys(*piece_);
      if (region_ == Region::kValues) return BeginValues(*piece_);
    } else {
      region_ = Region::kNone;
    }
    const KeyPiece behind = region_ == Region::kBehind ? PieceBehind(a_) : KeyPiece{};
    if (behind.k != nullptr) {
      return BeginRows(behind.k, behind.token, Least(behind.count, kTileKeys));
    }
    region_ = Region::kNone;
  }

  void BeginRows(const std::byte* keys, int token, int count) {
    const char* const first = reinterpret_cast<const char*>(keys) + a_.head_offset;
    if (count == a_.chunk_tokens) {  // the rows lie one behind the other
      rows_ = 1;
      BeginBytes(first, int64_t{key_rows_} * count * key_bytes_);
      return;
    }
    rows_ = key_rows_;
    row_step_ = int64_t{a_.chunk_tokens} * key_bytes_;
    BeginBytes(first + token * key_bytes_, count * key_bytes_);
  }

  void BeginKeys(const KeyPiece& piece) {
    const int32_t begin = Most(piece.begin, a_.begin);
    const int32_t end = Least(piece.begin + piece.count, a_.hi);
    BeginRows(piece.k, piece.token + (begin - piece.begin), end - begin);
  }

  void BeginValues(const KeyPiece& piece) {
    const int begin = piece.token + (Most(piece.begin, a_.begin) - piece.begin);
    const int end = piece.token + (Least(piece.begin + piece.count, a_.hi) - piece.begin);
    const int first = begin / value_tokens_;
    const int64_t row_bytes = int64_t{a_.head_dim} * key_bytes_;
    rows_ = 1;
    BeginBytes(reinterpret_cast<const char*>(piece.v) + a_.head_offset + first * row_bytes,
               (DivideUp(end, value_tokens_) - first) * row_bytes);
  }

  const SegmentArgs& a_;
  const KeyPiece* piece_;
  const int key_bytes_;  // of a row of keys: of an element or a pair
  const int key_rows_;
  const int value_tokens_;  // in a row of values
  Region region_ = Region::kKeys;
  int rows_ = 0;          // of the region, from this one on
  int64_t row_step_ = 0;  // bytes from one to the next
  int64_t in_row_ = 0, row_lines_ = 0;
  const char* next_ = nullptr;
  const char* row_ = nullptr;
};

struct FirstLevelCache {
  [[gnu::always_inline]] static void Ask(const char* line) { PrefetchToFirstLevel(line); }
};
struct SecondLevelCache {
  [[gnu::always_inline]] static void Ask(const char* line) { PrefetchToSecondLevel(line); }
};
using LinesAhead = LinesAheadTo<SecondLevelCache>;

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ATTENTION_LINES_AHEAD_H_
