#include "kernels/cpu/tile_rows_memory.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>

namespace refrain::kernels::cpu {
namespace {

constexpr std::align_val_t kHugePage{2 << 20};
// From here on a huge page is worth what of it is not used.
constexpr int64_t kManyBytes = 256 << 10;

}  // namespace

void TileRowsMemory::Words::Grow(int64_t words) {
  if (size_ >= words) return;
  Free();
  constexpr auto kPage = static_cast<int64_t>(kHugePage);
  int64_t bytes = words * static_cast<int64_t>(sizeof(uint16_t));
  if (bytes >= kManyBytes) bytes = (bytes + kPage - 1) / kPage * kPage;
  data_ = static_cast<uint16_t*>(::operator new(static_cast<size_t>(bytes), kHugePage));
  size_ = bytes / static_cast<int64_t>(sizeof(uint16_t));
  // Only advice, and whole pages of ours alone.
  if (bytes >= kManyBytes) madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  std::memset(data_, 0, static_cast<size_t>(bytes));
}

void TileRowsMemory::Words::Free() {
  ::operator delete(data_, kHugePage);
  data_ = nullptr;
  size_ = 0;
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
