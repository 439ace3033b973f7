#include "kernels/cpu/tile_rows_memory.h"

namespace refrain::kernels::cpu {
namespace {

constexpr uintptr_t kLineBytes = 64;

}  // namespace

void TileRowsMemory::Words::Grow(int64_t words) {
  constexpr int64_t kLineWords = kLineBytes / sizeof(uint16_t);
  if (static_cast<int64_t>(memory_.size()) >= words + kLineWords) return;
  memory_.assign(words + kLineWords, 0);
  const auto address = reinterpret_cast<uintptr_t>(memory_.data());
  data_ = memory_.data() + (kLineBytes - address % kLineBytes) % kLineBytes / sizeof(uint16_t);
}

void TileRowsMemory::Resize(int64_t rows, int64_t k, bool exact) {
  rows_ = rows;
  steps_ = (k + kTileK - 1) / kTileK;
  const int64_t groups = (rows + kTileRows - 1) / kTileRows;
  high_.Grow(groups * steps_ * kTileElements);
  exact_.clear();
  if (!exact) return;
  low_.Grow(groups * steps_ * kTileElements);
  exact_.resize(groups, 0);
}

TileRows TileRowsMemory::view() const {
  const bool exact = !exact_.empty();
  return {rows_, steps_, high_.data(), exact ? low_.data() : nullptr,
          exact ? exact_.data() : nullptr};
}

}  // namespace refrain::kernels::cpu
