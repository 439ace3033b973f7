#include "kernels/cpu/attention_lines_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace refrain::kernels::cpu {
namespace {

// Lines asked for, by their numbers in memory.
struct Recorder {
  static void Ask(const char* line) { lines.push_back(reinterpret_cast<uintptr_t>(line) / 64); }
  static inline std::vector<uintptr_t> lines;
};

// Chunks of one KV head that lie apart, keys before values.
struct Case {
  KvElementType type;
  int head_dim;
  std::vector<int> counts;  // of tokens, by piece; all but the first and the last are whole
  int begin = 0;            // first key that is read
  int unread = 0;           // last keys, which the next segment reads
  int chunk_tokens = 64;
  int first_token = 0;                      // of the first piece, inside its chunk
  int behind_token = 0, behind_count = 64;  // none: nothing is known to follow
  size_t head_offset = 0;

  int element_bytes() const { return type == KvElementType::kF32 ? 4 : 2; }
  int64_t chunk_bytes() const { return int64_t{chunk_tokens} * head_dim * element_bytes(); }
};

// What a tile does that reads kElements of E in each of `steps` steps.
template <class E, int kElements>
void Read(LinesAheadTo<Recorder>& ahead, int steps) {
  const auto share = ahead.reader<E>().template Begin<kElements>(steps);
  for (int i = 0; i < steps; ++i) share.template Ask<kElements>(i);
}

// What has been asked for but for harmless lines of `ahead` itself.
std::vector<uintptr_t> LinesBeside(const LinesAheadTo<Recorder>& ahead) {
  const auto here = reinterpret_cast<uintptr_t>(&ahead) / 64;
  std::vector<uintptr_t> lines;
  for (const uintptr_t line : Recorder::lines) {
    if (line < here || line > here + 8) lines.push_back(line);
  }
  return lines;
}
size_t NumLinesBeside(const LinesAheadTo<Recorder>& ahead) {
  const std::vector<uintptr_t> lines = LinesBeside(ahead);
  return std::set<uintptr_t>(lines.begin(), lines.end()).size();
}

class LinesAheadTest : public testing::TestWithParam<Case> {
 protected:
  LinesAheadTest() : memory_(1 << 20) {
    const Case& c = GetParam();
    const auto start = reinterpret_cast<uintptr_t>(memory_.data());
    base_ = memory_.data() + (64 - start % 64) % 64;
    int32_t key = 0;
    for (const int count : c.counts) {
      std::byte* const k = Chunk();
      pieces_.push_back(
          {k, k + c.chunk_bytes(), nullptr, key == 0 ? c.first_token : 0, key, count});
      key += count;
    }
    end_ = Chunk();
    if (c.behind_count > 0) behind_ = {end_, nullptr, nullptr, c.behind_token, 0, c.behind_count};
    args_.type = c.type;
    args_.head_dim = c.head_dim;
    args_.chunk_tokens = c.chunk_tokens;
    args_.pieces = pieces_.data();
    args_.pieces_end = pieces_.data() + pieces_.size();
    args_.behind = behind_;
    args_.head_offset = c.head_offset;
    args_.begin = c.begin;
    args_.hi = key - c.unread;
    Recorder::lines.clear();
  }

  std::byte* Chunk() { return base_ + 3 * GetParam().chunk_bytes() * next_chunk_++; }

  // Of the element `i` of the chunk's token `token`.
  static int64_t KeyOffset(const Case& c, int i, int token) {
    if (c.type == KvElementType::kBF16Pairs) {
      return ((i / 2 * c.chunk_tokens + token) * 2 + i % 2) * 2;
    }
    return (i * c.chunk_tokens + token) * c.element_bytes();
  }
  static int64_t ValueOffset(const Case& c, int i, int token) {
    if (c.type == KvElementType::kBF16Pairs) {
      return ((token / 2 * c.head_dim + i) * 2 + token % 2) * 2;
    }
    return (token * c.head_dim + i) * c.element_bytes();
  }

  // Of the keys [begin, end) of a piece, `offset` says where.
  std::set<uintptr_t> LinesOf(const KeyPiece& piece, const std::byte* base, int begin, int end,
                              auto offset) const {
    std::set<uintptr_t> lines;
    for (int key = std::max(begin, piece.begin); key < std::min(end, piece.begin + piece.count);
         ++key) {
      for (int i = 0; i < GetParam().head_dim; ++i) {
        const int64_t at = offset(GetParam(), i, piece.token + key - piece.begin);
        lines.insert(reinterpret_cast<uintptr_t>(base + GetParam().head_offset + at) / 64);
      }
    }
    return lines;
  }

  std::vector<std::byte> memory_;
  std::byte* base_;
  int64_t next_chunk_ = 0;
  std::vector<KeyPiece> pieces_;
  const std::byte* end_;  // behind all chunks
  KeyPiece behind_{};
  SegmentArgs args_{};
};

TEST_P(LinesAheadTest, AsksForWhatIsReadAndNothingElse) {
  std::set<uintptr_t> read;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const KeyPiece& piece = pieces_[p];
    if (p > 0) read.merge(LinesOf(piece, piece.k, args_.begin, args_.hi, KeyOffset));
    read.merge(LinesOf(piece, piece.v, args_.begin, args_.hi, ValueOffset));
  }
  const size_t own = read.size();
  std::set<uintptr_t> behind = GetParam().unread > 0
                                   ? LinesOf(pieces_.back(), pieces_.back().k, args_.hi,
                                             args_.hi + GetParam().unread, KeyOffset)
                                   : LinesOf(behind_, behind_.k, 0, behind_.count, KeyOffset);
  const size_t next = behind.size();
  read.merge(behind);

  LinesAheadTo<Recorder> ahead(args_);
  Read<uint32_t, 64>(ahead, 2);
  EXPECT_EQ(LinesBeside(ahead).size(), 8u);
  ahead.AskForRest();
  const std::vector<uintptr_t> lines = LinesBeside(ahead);
  EXPECT_EQ(lines.size(), own + next);  // each once
  EXPECT_EQ(std::set<uintptr_t>(lines.begin(), lines.end()), read);

  // Whoever goes on asking gets something harmless.
  Recorder::lines.clear();
  Read<uint32_t, 64>(ahead, 1000);
  ahead.AskForRest();
  EXPECT_EQ(LinesBeside(ahead).size(), 0u);
}

// As many lines for each step as it reads, where vectors are shorter than lines or no whole ones.
TEST_P(LinesAheadTest, StepsAskForAsMuchAsTheyRead) {
  LinesAheadTo<Recorder> ahead(args_);
  Read<uint16_t, 16>(ahead, 8);  // half a line each
  EXPECT_EQ(NumLinesBeside(ahead), 4u);
  Read<float, 24>(ahead, 8);  // one and a half
  EXPECT_EQ(NumLinesBeside(ahead), 4u + 12u);
}

// All is asked for whatever the tiles' shares are, which rarely end with a row of lines.
TEST_P(LinesAheadTest, SharesOfAnySizeAskForAll) {
  LinesAheadTo<Recorder> one_by_one(args_);
  one_by_one.AskForRest();
  const size_t count = Recorder::lines.size();  // some twice, where two regions have them
  const std::set<uintptr_t> all(Recorder::lines.begin(), Recorder::lines.end());
  for (const int steps : {1, 3, 7, 32, 64}) {
    Recorder::lines.clear();
    LinesAheadTo<Recorder> ahead(args_);
    for (size_t asked = 0; asked < count; asked += 4 * steps) {
      Read<uint32_t, 64>(ahead, steps);
    }
    const std::vector<uintptr_t> lines = LinesBeside(ahead);
    EXPECT_EQ(std::set<uintptr_t>(lines.begin(), lines.end()), all) << steps;
  }
}

TEST_P(LinesAheadTest, NothingMayFollow) {
  args_.behind = {};
  LinesAheadTo<Recorder> ahead(args_);
  ahead.AskForRest();
  const auto behind = reinterpret_cast<uintptr_t>(end_) / 64;
  for (const uintptr_t line : Recorder::lines) EXPECT_LT(line, behind);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LinesAheadTest,
    testing::Values(
        Case{KvElementType::kBF16Pairs, 64, {64, 64, 1}},
        Case{KvElementType::kBF16Pairs, 128, {64, 37}},
        Case{KvElementType::kBF16Pairs, 64, {64, 64, 64}, /*begin=*/9},
        Case{KvElementType::kBF16Pairs, 64, {17}},
        // What follows is the rest of a piece, or a part of another.
        Case{.type = KvElementType::kBF16Pairs, .head_dim = 64, .counts = {64, 64}, .unread = 23},
        Case{.type = KvElementType::kBF16Pairs,
             .head_dim = 64,
             .counts = {64, 2},
             .behind_token = 21,
             .behind_count = 3},
        Case{.type = KvElementType::kBF16Pairs,
             .head_dim = 64,
             .counts = {43, 64, 7},
             .first_token = 21,
             .head_offset = 4096},
        // One piece of rows that are longer than it, as E4M3's widened copies.
        Case{.type = KvElementType::kBF16Pairs,
             .head_dim = 64,
             .counts = {300},
             .begin = 7,
             .chunk_tokens = 528,
             .behind_count = 0},
        Case{.type = KvElementType::kBF16Pairs,
             .head_dim = 32,
             .counts = {128, 128, 90},
             .chunk_tokens = 128},
        Case{KvElementType::kF16, 64, {64, 64, 40}},
        Case{KvElementType::kF16, 128, {64, 3}, /*begin=*/33},
        Case{.type = KvElementType::kF16,
             .head_dim = 64,
             .counts = {16, 16, 16},
             .chunk_tokens = 16,
             .behind_count = 16},
        Case{KvElementType::kF32, 64, {64, 18}}, Case{KvElementType::kF32, 16, {64, 64}}));

}  // namespace
}  // namespace refrain::kernels::cpu
