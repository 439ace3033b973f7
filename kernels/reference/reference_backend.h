#ifndef REFRAIN_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
#define REFRAIN_KERNELS_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/reference/host_device.h"

namespace refrain::kernels {

// The oracle: naive loops over host memory, one thread, sums in double precision. It is what every
// other back end is compared with, and the simplest description of what the operations mean.
//
// It is not meant to be fast, and it keeps weights dequantised to f32 (4 bytes per element).
// ComputeDType: kBF16 rounds weights and activations to bf16 and multiplies exactly; every other
// one multiplies the dequantised weights with the activations as they are, also kQuantized: the
// rounding of activations to fixed point is an error to be measured, not part of the truth.
//
// ChunkAttention asserts what it is promised about the plan: the runs of a slot cover its keys
// without gap or overlap, in order.
class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend();

  const BackendInfo& info() const override { return info_; }
  Device& device() override { return device_; }

  absl::StatusOr<std::unique_ptr<LinearWeight>> PackLinear(std::span<const WeightSlice> slices,
                                                           const PackOptions& options) override;

  void Embed(const EmbedArgs& args) override;
  void RmsNorm(const RmsNormArgs& args) override;
  void Linear(const LinearArgs& args) override;
  void GateUp(const GateUpArgs& args) override;
  void RopeAppend(const RopeAppendArgs& args) override;
  void ChunkAttention(const ChunkAttentionArgs& args) override;
  void SwiGlu(const SwiGluArgs& args) override;
  void Add(const AddArgs& args) override;

  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  BackendInfo info_;
  HostDevice device_;
};

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
