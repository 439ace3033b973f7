#ifndef REFRAIN_KERNELS_CPU_TILE_ROWS_MEMORY_H_
#define REFRAIN_KERNELS_CPU_TILE_ROWS_MEMORY_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/tile_kernels.h"

namespace refrain::kernels::cpu {

// Memory for rows of activations as tiles, which only grows. One thread calls Resize and SetExact;
// then many may fill different rows.
class TileRowsMemory {
 public:
  // For `rows` rows of `k` elements. No group is exact, and with `exact` some may be made so.
  void Resize(int64_t rows, int64_t k, bool exact);
  void SetExact(int64_t row) { exact_[row / kTileRows] = 1; }

  // Where TileKernels::pack_row puts row `row`; low is null where its group is not exact.
  uint16_t* high(int64_t row) { return high_.data() + Offset(row); }
  uint16_t* low(int64_t row) { return IsExact(row) ? low_.data() + Offset(row) : nullptr; }
  TileRows view() const;

 private:
  // On the border of a huge page, of such pages where they are many: of 4 KiB pages some share the
  // same sets of the second-level cache, which all rows should stay in.
  class Words {
   public:
    Words() = default;
    ~Words() { Free(); }
    Words(const Words&) = delete;
    Words& operator=(const Words&) = delete;

    // What it grows to is zero; what it held is lost.
    void Grow(int64_t words);
    uint16_t* data() const { return data_; }

   private:
    void Free();

    uint16_t* data_ = nullptr;
    int64_t size_ = 0;
  };

  int64_t Offset(int64_t row) const {
    return row / kTileRows * steps_ * kTileElements + row % kTileRows * kTileK;
  }
  bool IsExact(int64_t row) const { return !exact_.empty() && exact_[row / kTileRows] != 0; }

  int64_t rows_ = 0, steps_ = 0;
  Words high_, low_;
  std::vector<uint8_t> exact_;  // empty: none is
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_TILE_ROWS_MEMORY_H_
