#include "kernels/cpu/fixed_rows_memory.h"

#include <cassert>

namespace refrain::kernels::cpu {
namespace {

template <typename T>
void Grow(std::vector<T>& buffer, int64_t count) {
  if (static_cast<int64_t>(buffer.size()) < count) buffer.resize(count);
}

}  // namespace

void FixedRowsMemory::Resize(int digits, int64_t rows, int64_t blocks, bool words) {
  assert(digits == 1 || digits == 2);
  assert(!words || digits == 2);
  digits_ = digits;
  has_words_ = words;
  blocks_ = blocks;
  Grow(high_low_, rows * blocks * digits * kBlockK);
  Grow(scales_, rows * blocks);
  Grow(scaled_sums_, rows * blocks);
  Grow(negated_sums_, rows * blocks);
  Grow(half_negated_sums_, rows * blocks * 2);
  if (words) Grow(words_, rows * blocks * kBlockK);
  if (digits == 2) return;
  Grow(low_, rows * blocks * kBlockK);
  Grow(has_low_, rows * blocks);
}

FixedRowOut FixedRowsMemory::Row(int64_t row) {
  const int64_t at = row * blocks_;
  return {high_low_.data() + at * digits_ * kBlockK,
          scales_.data() + at,
          scaled_sums_.data() + at,
          negated_sums_.data() + at,
          half_negated_sums_.data() + 2 * at,
          digits_ == 1 ? low_.data() + at * kBlockK : nullptr,
          digits_ == 1 ? has_low_.data() + at : nullptr,
          has_words_ ? words_.data() + at * kBlockK : nullptr};
}

FixedRows FixedRowsMemory::view() const {
  return {blocks_,
          high_low_.data(),
          scales_.data(),
          scaled_sums_.data(),
          negated_sums_.data(),
          half_negated_sums_.data(),
          digits_ == 1 ? low_.data() : nullptr,
          digits_ == 1 ? has_low_.data() : nullptr,
          has_words_ ? words_.data() : nullptr};
}

int FixedRowsMemory::Integer(int64_t i) const {
  const int64_t block = i / kBlockK;
  constexpr int kHigh = 1 << kDigitBits;
  if (digits_ == 2) {
    const int8_t* const high = &high_low_[block * 2 * kBlockK + i % kBlockK];
    return kHigh * high[0] + high[kBlockK];
  }
  return kHigh * high_low_[i] + (has_low_[block] != 0 ? low_[i] : 0);
}

double FixedRowsMemory::Value(int64_t i) const {
  const double unit = scales_[i / kBlockK];
  return Integer(i) * (digits_ == 2 ? unit : unit / (1 << kDigitBits));
}

}  // namespace refrain::kernels::cpu
