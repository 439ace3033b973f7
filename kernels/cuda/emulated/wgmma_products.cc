#include "kernels/cuda/emulated/wgmma_products.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/cuda/emulated/emulated_thread.h"

namespace refrain::kernels::cuda::emulated {
namespace {

constexpr int kRows = 64, kDepth = 16;

// Row and column of element i of a thread's accumulators: the accumulator layout of mma.m16n8k16,
// eight columns after the other, 16 rows per warp.
int AccumulatorRow(int thread, int i) {
  return thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
}
int AccumulatorColumn(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

void CheckAlike(const WgmmaOperand& first, const WgmmaOperand& other) {
  const bool alike = first.n == other.n && first.accumulate == other.accumulate &&
                     first.transpose_a == other.transpose_a &&
                     first.transpose_b == other.transpose_b && first.to_float == other.to_float &&
                     first.b_descriptor == other.b_descriptor &&
                     (first.a == nullptr) == (other.a == nullptr) &&
                     (first.a != nullptr || first.a_descriptor == other.a_descriptor);
  if (!alike) FailKernel("wgmma: threads of a warpgroup issue different products");
}

float SharedElement(const WgmmaOperand& operand, uint64_t descriptor, bool mn_major, int row,
                    int k) {
  const BlockContext& block = *CurrentThread().block;
  const uint32_t offset = WgmmaElementOffset(descriptor, mn_major, row, k);
  if (offset + 2 > block.shared_bytes) FailKernel("wgmma: an operand outside of shared memory");
  uint16_t bits;
  std::memcpy(&bits, block.shared + offset, sizeof(bits));
  return operand.to_float(bits);
}

// a from the registers of all threads: the A operand of mma.m16n8k16, 16 rows per warp.
std::vector<float> FragmentsOfA(void* const* operands) {
  std::vector<float> a(kRows * kDepth);
  for (int thread = 0; thread < WgmmaProducts::kThreads; ++thread) {
    const auto& own = *static_cast<const WgmmaOperand*>(operands[thread]);
    for (int i = 0; i < 8; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
      const int k = i / 4 * 8 + thread % 4 * 2 + i % 2;
      a[row * kDepth + k] = own.to_float(static_cast<uint16_t>(own.a[i / 2] >> 16 * (i % 2)));
    }
  }
  return a;
}

}  // namespace

uint32_t WgmmaElementOffset(uint64_t descriptor, bool mn_major, int row, int k) {
  const auto field = [descriptor](int bit) {
    return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4;
  };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  const auto swizzle = static_cast<uint32_t>(descriptor >> 62);
  if ((descriptor >> 49 & 7) != 0) FailKernel("wgmma: a base offset is not known here");
  if (swizzle == 3) FailKernel("wgmma: the 32-byte swizzle is not known here");
  const uint32_t span = swizzle == 0 ? 8 : swizzle == 1 ? 64 : 32;  // elements in a pattern's row
  const auto r = static_cast<uint32_t>(row), c = static_cast<uint32_t>(k);
  uint32_t offset;
  if (swizzle == 0) {
    // Units of 8 x 8 elements, 128 bytes; the contiguous direction is the major one.
    const uint32_t inside = mn_major ? c % 8 * 16 + r % 8 * 2 : r % 8 * 16 + c % 8 * 2;
    offset = inside + r / 8 * stride + c / 8 * leading;
  } else if (mn_major) {
    offset = r % span * 2 + r / span * leading + c % 8 * span * 2 + c / 8 * stride;
  } else {
    offset = r % 8 * span * 2 + r / 8 * stride + c * 2;
  }
  const uint32_t address = start + offset;
  if (swizzle == 1) return address ^ (address >> 7 & 7) << 4;
  if (swizzle == 2) return address ^ (address >> 7 & 3) << 4;
  return address;
}

WgmmaProducts::Accumulator& WgmmaProducts::Take(void* const* operands) {
  const auto& first = *static_cast<const WgmmaOperand*>(operands[0]);
  for (const auto& accumulator : accumulators_) {
    if (accumulator->d[0] == first.d && accumulator->n == first.n) return *accumulator;
  }
  auto taken = std::make_unique<Accumulator>();
  taken->n = first.n;
  taken->values.resize(static_cast<size_t>(kRows) * first.n);
  for (int thread = 0; thread < kThreads; ++thread) {
    float* const d = static_cast<const WgmmaOperand*>(operands[thread])->d;
    taken->d[thread] = d;
    for (int i = 0; i < first.n / 2; ++i) {
      taken->values[AccumulatorRow(thread, i) * first.n + AccumulatorColumn(thread, i)] = d[i];
      d[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  accumulators_.push_back(std::move(taken));
  return *accumulators_.back();
}

void WgmmaProducts::Hold(const void* registers, size_t bytes) {
  const Registers held{static_cast<const std::byte*>(registers), bytes};
  // The first time behind a wait does not count for the next fence: in between the threads write
  // the registers.
  if (std::erase_if(loose_, [&](const void* at) { return held.Has(at); }) == 0) {
    held_.push_back(held);
  }
}

void WgmmaProducts::Fence() {
  if (!loose_.empty()) FailKernel("wgmma: registers that were not held behind the wait");
  fenced_ = std::exchange(held_, {});
}

void WgmmaProducts::CheckHeld(const WgmmaOperand& operand) const {
  for (const void* const registers :
       {static_cast<const void*>(operand.d), static_cast<const void*>(operand.a)}) {
    const bool held = registers == nullptr ||
                      std::any_of(fenced_.begin(), fenced_.end(),
                                  [&](const Registers& range) { return range.Has(registers); });
    if (!held) FailKernel("wgmma: registers that were not held before the fence");
  }
}

// To the race detector: they may be read from now on.
void WgmmaProducts::NoteReads(const WgmmaOperand& operand) {
  if (!NoteProduct()) return;
  for (int k = 0; k < kDepth; ++k) {
    for (int row = 0; operand.a == nullptr && row < kRows; ++row) {
      NoteProductRead(WgmmaElementOffset(operand.a_descriptor, operand.transpose_a, row, k));
    }
    for (int column = 0; column < operand.n; ++column) {
      NoteProductRead(WgmmaElementOffset(operand.b_descriptor, operand.transpose_b, column, k));
    }
  }
}

void WgmmaProducts::Issue(void* const* operands) {
  const auto& first = *static_cast<const WgmmaOperand*>(operands[0]);
  for (int thread = 1; thread < kThreads; ++thread) {
    CheckAlike(first, *static_cast<const WgmmaOperand*>(operands[thread]));
  }
  CheckHeld(first);
  NoteReads(first);
  Product product{first, {}, &Take(operands)};
  if (first.a != nullptr) product.a = FragmentsOfA(operands);
  ++product.accumulator->under_way;
  open_.push_back(std::move(product));
}

WgmmaProducts& Products() {
  std::shared_ptr<void>& products =
      CurrentThread().block->warpgroup_state[CurrentThread().linear / WgmmaProducts::kThreads];
  if (products == nullptr) products = std::make_shared<WgmmaProducts>();
  return *static_cast<WgmmaProducts*>(products.get());
}

void WgmmaProducts::Commit() {
  groups_.push_back(std::exchange(open_, {}));
  NoteProductCommit();
}

void WgmmaProducts::Wait(int pending_groups) {
  NoteProductWait(pending_groups);
  while (static_cast<int>(groups_.size()) > pending_groups) {
    for (const Product& product : groups_.front()) {
      Perform(product);
      --product.accumulator->under_way;
      if (product.operand.a != nullptr) loose_.push_back(product.operand.a);
    }
    groups_.pop_front();
  }
  std::erase_if(accumulators_, [this](const std::unique_ptr<Accumulator>& accumulator) {
    if (accumulator->under_way > 0) return false;
    loose_.push_back(accumulator->d[0]);
    for (int thread = 0; thread < kThreads; ++thread) {
      for (int i = 0; i < accumulator->n / 2; ++i) {
        accumulator->d[thread][i] =
            accumulator
                ->values[AccumulatorRow(thread, i) * accumulator->n + AccumulatorColumn(thread, i)];
      }
    }
    return true;
  });
}

void WgmmaProducts::Perform(const Product& product) {
  const WgmmaOperand& operand = product.operand;
  std::vector<float>& a = a_;
  a = product.a;
  if (a.empty()) {
    a.resize(kRows * kDepth);
    for (int row = 0; row < kRows; ++row) {
      for (int k = 0; k < kDepth; ++k) {
        a[row * kDepth + k] =
            SharedElement(operand, operand.a_descriptor, operand.transpose_a, row, k);
      }
    }
  }
  std::vector<float>& b = b_;
  b.resize(static_cast<size_t>(kDepth) * operand.n);
  for (int k = 0; k < kDepth; ++k) {
    for (int column = 0; column < operand.n; ++column) {
      b[k * operand.n + column] =
          SharedElement(operand, operand.b_descriptor, operand.transpose_b, column, k);
    }
  }
  std::vector<float>& d = product.accumulator->values;
  constexpr int kColumns = 8;  // at a time; N is a multiple of it
  for (int row = 0; row < kRows; ++row) {
    for (int first = 0; first < operand.n; first += kColumns) {
      float sum[kColumns] = {};
      for (int k = 0; k < kDepth; ++k) {
        const float factor = a[row * kDepth + k];
        const float* const from = &b[k * operand.n + first];
        for (int column = 0; column < kColumns; ++column) sum[column] += factor * from[column];
      }
      float* const to = &d[row * operand.n + first];
      for (int column = 0; column < kColumns; ++column) {
        to[column] = operand.accumulate ? to[column] + sum[column] : sum[column];
      }
    }
  }
}

}  // namespace refrain::kernels::cuda::emulated
