#ifndef REFRAIN_KERNELS_CUDA_EMULATED_WGMMA_PRODUCTS_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_WGMMA_PRODUCTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace refrain::kernels::cuda::emulated {

// Byte offset in shared memory of element (row, k) of a 16-bit operand: row counts a's rows or b's
// columns, `mn_major` is wgmma's imm-trans. wgmma.h says what the descriptor means.
uint32_t WgmmaElementOffset(uint64_t descriptor, bool mn_major, int row, int k);

// What one thread brings to a product.
struct WgmmaOperand {
  int n = 0;
  bool accumulate = false;
  bool transpose_a = false, transpose_b = false;
  float (*to_float)(uint16_t) = nullptr;
  uint64_t a_descriptor = 0, b_descriptor = 0;
  const uint32_t* a = nullptr;  // [4], or null: a is in shared memory
  float* d = nullptr;           // [n / 2]
};

// The products of one warpgroup that are under way. Issue takes the accumulators away from the
// threads (they hold NaN until the products are waited for), Wait reads the operands from shared
// memory and gives the results back: the latest moments that the instructions allow. Called while
// the warpgroup stands still, but for Hold and Fence, which the first thread calls. A mistake ends
// the kernel (FailKernel).
class WgmmaProducts {
 public:
  static constexpr int kThreads = 128;

  void Hold(const void* registers, size_t bytes);
  void Fence();
  void Issue(void* const* operands);  // of WgmmaOperand, [kThreads]
  void Commit();
  void Wait(int pending_groups);

 private:
  struct Accumulator {
    int n = 0;
    int under_way = 0;
    std::array<float*, kThreads> d{};
    std::vector<float> values;  // [64, n]
  };
  struct Product {
    WgmmaOperand operand;  // of the first thread
    std::vector<float> a;  // [64, 16] where a came in registers
    Accumulator* accumulator;
  };

  struct Registers {
    const std::byte* begin;
    size_t bytes;
    bool Has(const void* at) const { return at >= begin && at < begin + bytes; }
  };

  static void NoteReads(const WgmmaOperand& operand);
  void CheckHeld(const WgmmaOperand& operand) const;
  Accumulator& Take(void* const* operands);
  void Perform(const Product& product);

  std::vector<Registers> held_;     // since the last fence
  std::vector<Registers> fenced_;   // held before it: products may use them
  std::vector<const void*> loose_;  // of products waited for, not held since
  std::vector<std::unique_ptr<Accumulator>> accumulators_;
  std::vector<Product> open_;  // of the group not yet committed
  std::deque<std::vector<Product>> groups_;
  // Perform's: not on its stack, which FailKernel leaves without unwinding it.
  std::vector<float> a_, b_;
};

// Of the calling thread's warpgroup; they end with their block.
WgmmaProducts& Products();

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_WGMMA_PRODUCTS_H_
