#ifndef REFRAIN_KERNELS_CPU_FIXED_ROWS_MEMORY_H_
#define REFRAIN_KERNELS_CPU_FIXED_ROWS_MEMORY_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/quantized_kernels.h"

namespace refrain::kernels::cpu {

// Memory for rows of activations in fixed point, which only grows. One thread calls Resize; then
// many may fill different rows.
class FixedRowsMemory {
 public:
  // For `rows` rows of `blocks` blocks of 32, of two digits, with FixedRows::words if `words`, or
  // of one. What was there is lost.
  void Resize(int digits, int64_t rows, int64_t blocks, bool words = false);

  // Where FixedKernels::quantize_row puts row `row`, and where products read all.
  FixedRowOut Row(int64_t row);
  FixedRows view() const;

  // What element i of all rows was rounded to: x = Value(i), q = Integer(i) in units of low digits.
  double Value(int64_t i) const;
  int Integer(int64_t i) const;

 private:
  int digits_ = 2;
  bool has_words_ = false;
  int64_t blocks_ = 0;  // of a row
  std::vector<int8_t> high_low_, low_;
  std::vector<float> scales_, scaled_sums_;
  std::vector<int32_t> negated_sums_, half_negated_sums_;
  std::vector<uint8_t> has_low_;
  std::vector<int16_t> words_;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_FIXED_ROWS_MEMORY_H_
