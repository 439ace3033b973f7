#ifndef REFRAIN_TESTS_KVCACHE_CELLS_H_
#define REFRAIN_TESTS_KVCACHE_CELLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvcache/prefix_tree.h"
#include "kvcache/types.h"
#include "tests/support/fake_chunk_mover.h"

namespace refrain::testing {

using Cells = std::vector<FakeKvCell>;

// Tokens of `text`, one per character, at positions begin, begin + 1, ...
inline Cells CellsOf(const std::string& text, int32_t begin = 0) {
  Cells cells;
  for (const char c : text) cells.push_back({c, begin + static_cast<int32_t>(cells.size())});
  return cells;
}

// Cells as the two arrays of a TokenSpan.
struct SpanOf {
  explicit SpanOf(const Cells& cells) {
    for (const FakeKvCell& cell : cells) {
      ids.push_back(kvcache::TokenId{cell.token});
      positions.push_back(cell.position);
    }
  }
  kvcache::TokenSpan span() const { return {ids, positions}; }
  std::vector<kvcache::TokenId> ids;
  std::vector<int32_t> positions;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_KVCACHE_CELLS_H_
