#ifndef REFRAIN_KERNELS_CPU_ACTIVATION_BUFFER_H_
#define REFRAIN_KERNELS_CPU_ACTIVATION_BUFFER_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/tensor_view.h"

namespace refrain::kernels::cpu {

// Which forms of the activations an operation's weights read.
struct ActivationForms {
  bool bf16 = false;
  bool fixed = false;
  bool int8 = false;

  void Add(ActivationForm form) {
    bf16 |= form == ActivationForm::kBF16;
    fixed |= form == ActivationForm::kFixed;
    int8 |= form == ActivationForm::kInt8;
  }
};

// The other forms of an operation's activations, in memory that is kept from call to call and only
// grows (to the largest rows x k seen). Used by CpuBackend from the engine thread.
class ActivationBuffer {
 public:
  explicit ActivationBuffer(Isa isa) : isa_(isa) {}

  // `x` ([rows, k] f32) in the forms asked for; valid until the next call. Few rows are converted
  // on the calling thread, without waking the pool. Fixed point needs k to be a
  // multiple of 32.
  Activations Prepare(const TensorView& x, ActivationForms forms, ThreadPool& pool);

 private:
  struct FixedMemory {
    std::vector<int8_t> digits;
    std::vector<float> scales, scaled_sums;
    std::vector<int32_t> negated_sums, half_negated_sums;
  };

  FixedActivations PrepareFixed(const TensorView& x, int digits, ThreadPool& pool,
                                FixedMemory& memory);
  void PrepareBF16(const TensorView& x, ThreadPool& pool, Activations& out);

  Isa isa_;
  std::vector<uint16_t> bf16_;
  FixedMemory fixed_, int8_;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_ACTIVATION_BUFFER_H_
