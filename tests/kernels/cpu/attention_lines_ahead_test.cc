#include "kernels/cpu/attention_lines_ahead.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace refrain::kernels::cpu {
namespace {

constexpr int kChunkTokens = 64;

// Lines asked for, by their numbers in memory.
struct Recorder {
  static void Ask(const char* line) { lines.push_back(reinterpret_cast<uintptr_t>(line) / 64); }
  static inline std::vector<uintptr_t> lines;
};

// Chunks of one KV head that lie apart, keys before values.
struct Case {
  KvElementType type;
  int head_dim;
  std::vector<int> counts;  // of tokens, by piece; all but the last are whole
  int begin = 0;            // first key that is read

  int element_bytes() const { return type == KvElementType::kF32 ? 4 : 2; }
  int64_t chunk_bytes() const { return int64_t{kChunkTokens} * head_dim * element_bytes(); }
};

class LinesAheadTest : public testing::TestWithParam<Case> {
 protected:
  LinesAheadTest() : memory_(1 << 20) {
    const auto start = reinterpret_cast<uintptr_t>(memory_.data());
    base_ = memory_.data() + (64 - start % 64) % 64;
    const Case& c = GetParam();
    int32_t key = 0;
    for (const int count : c.counts) {
      std::byte* const k = base_ + 3 * c.chunk_bytes() * std::ssize(pieces_);
      pieces_.push_back({k, k + c.chunk_bytes(), nullptr, 0, key, count});
      key += count;
    }
    behind_ = base_ + 3 * c.chunk_bytes() * std::ssize(pieces_);
    args_.type = c.type;
    args_.head_dim = c.head_dim;
    args_.chunk_tokens = kChunkTokens;
    args_.pieces = pieces_.data();
    args_.pieces_end = pieces_.data() + pieces_.size();
    args_.behind = behind_;
    args_.begin = c.begin;
    args_.hi = key;
    Recorder::lines.clear();
  }

  // Of the element `i` of key `key`.
  static int64_t KeyOffset(const Case& c, int i, int key) {
    if (c.type == KvElementType::kBF16Pairs) return ((i / 2 * kChunkTokens + key) * 2 + i % 2) * 2;
    return (i * kChunkTokens + key) * c.element_bytes();
  }
  static int64_t ValueOffset(const Case& c, int i, int key) {
    if (c.type == KvElementType::kBF16Pairs) return ((key / 2 * c.head_dim + i) * 2 + key % 2) * 2;
    return (key * c.head_dim + i) * c.element_bytes();
  }

  std::set<uintptr_t> LinesOf(const std::byte* base, int begin, int end, auto offset) const {
    std::set<uintptr_t> lines;
    for (int key = begin; key < end; ++key) {
      for (int i = 0; i < GetParam().head_dim; ++i) {
        lines.insert(reinterpret_cast<uintptr_t>(base + offset(GetParam(), i, key)) / 64);
      }
    }
    return lines;
  }

  std::vector<std::byte> memory_;
  std::byte* base_;
  std::vector<KeyPiece> pieces_;
  const std::byte* behind_;
  SegmentArgs args_{};
};

TEST_P(LinesAheadTest, AsksForWhatIsReadAndNothingElse) {
  std::set<uintptr_t> read;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const KeyPiece& piece = pieces_[p];
    const int begin = piece.begin < args_.begin ? args_.begin - piece.begin : 0;
    if (p > 0) read.merge(LinesOf(piece.k, begin, piece.count, KeyOffset));
    read.merge(LinesOf(piece.v, begin, piece.count, ValueOffset));
  }
  read.merge(LinesOf(behind_, 0, kChunkTokens, KeyOffset));

  LinesAheadTo<Recorder> ahead(args_);
  ahead.Ask<4>();
  ahead.reader<uint32_t>().Ask<64>(0);
  EXPECT_EQ(Recorder::lines.size(), 8u);
  ahead.AskForRest();
  EXPECT_EQ(Recorder::lines.size(), read.size());  // each once
  EXPECT_EQ(std::set<uintptr_t>(Recorder::lines.begin(), Recorder::lines.end()), read);

  // Whoever goes on asking gets something harmless.
  Recorder::lines.clear();
  ahead.Ask<4>();
  EXPECT_EQ(Recorder::lines.size(), 4u);
}

// As many lines for each step as it reads, where vectors are shorter than lines or no whole ones.
TEST_P(LinesAheadTest, StepsAskForAsMuchAsTheyRead) {
  LinesAheadTo<Recorder> ahead(args_);
  for (int i = 0; i < 8; ++i) ahead.reader<uint16_t>().Ask<16>(i);  // half a line each
  EXPECT_EQ(Recorder::lines.size(), 4u);
  for (int i = 0; i < 8; ++i) ahead.reader<float>().Ask<24>(i);  // one and a half
  EXPECT_EQ(Recorder::lines.size(), 4u + 12u);
}

TEST_P(LinesAheadTest, NothingMayFollow) {
  args_.behind = nullptr;
  LinesAheadTo<Recorder> ahead(args_);
  ahead.AskForRest();
  const auto behind = reinterpret_cast<uintptr_t>(behind_) / 64;
  for (const uintptr_t line : Recorder::lines) EXPECT_LT(line, behind);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LinesAheadTest,
    testing::Values(Case{KvElementType::kBF16Pairs, 64, {64, 64, 1}},
                    Case{KvElementType::kBF16Pairs, 128, {64, 37}},
                    Case{KvElementType::kBF16Pairs, 64, {64, 64, 64}, /*begin=*/9},
                    Case{KvElementType::kBF16Pairs, 64, {17}},
                    Case{KvElementType::kF16, 64, {64, 64, 40}},
                    Case{KvElementType::kF16, 128, {64, 3}, /*begin=*/33},
                    Case{KvElementType::kF32, 64, {64, 18}},
                    Case{KvElementType::kF32, 16, {64, 64}}));

}  // namespace
}  // namespace refrain::kernels::cpu
