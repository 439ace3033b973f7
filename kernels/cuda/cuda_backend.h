#ifndef REFRAIN_KERNELS_CUDA_CUDA_BACKEND_H_
#define REFRAIN_KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention_check.h"
#include "kernels/cuda/attention_launcher.h"
#include "kernels/cuda/backend_failure.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/device_matrix.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/library_products.h"
#include "kernels/cuda/rounded_x.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/step_arrays.h"
#include "kernels/cuda/step_clock.h"
#include "kernels/cuda/step_graphs.h"

namespace refrain::kernels::cuda {

struct CudaOptions {
  int device = 0;
  // Computes attention wherever it has the shape; null: the fastest that has it. The others take
  // the rest. For tests, and to tell a faulty kernel from what is around it.
  std::optional<AttentionKernel> attention;
  // Those that attention occupies; null: all. For tests: of few, each has much to do.
  std::optional<int> attention_multiprocessors;
  // Tries a kernel for tensor cores on this device before it may be used; a faulty one is left out,
  // with a warning (BackendInfo::warning). Null: they are taken for right.
  AttentionCheck check_attention;
  // Products by the device's library where it is there and faster; null: by our own kernels alone.
  std::optional<LibraryProducts::Options> library;
};

// The back end of one CUDA device, or of the emulated one. Operations are kernels on one stream:
// they return at once, and nothing waits for the host but Synchronize and copies from the device.
//
// Failure: an operation that could not be put on the stream (scratch memory, a launch that finds
// none, a copy, also one from the host beside the operations) is kept and reported by the next
// Synchronize, or by the next end of a step of the token sampler's, and the operations up to there
// do nothing; then the back end goes on. An error of the device itself ends it: every Synchronize
// from then on is INTERNAL and says what it was. Threads as Backend says.
class CudaBackend final : public Backend {
 public:
  // FAILED_PRECONDITION: no device or driver, or a device that cannot be used or is older than
  // sm_80; NOT_FOUND: no device of this number; INTERNAL: the device failed while its attention was
  // tried.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(const CudaOptions& options);
  // On the runtime's device.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(std::unique_ptr<Runtime> runtime,
                                                             const CudaOptions& options = {});
  ~CudaBackend() override;

  const BackendInfo& info() const override { return info_; }
  Device& device() override { return device_; }
  Runtime& runtime() { return *runtime_; }
  Stream& stream() { return *stream_; }

  absl::StatusOr<std::unique_ptr<LinearWeight>> PackLinear(std::span<const WeightSlice> slices,
                                                           const PackOptions& options) override;

  absl::Status ReserveFor(const StepShape& step) override;
  void BeginStep(const StepInputs& inputs) override;
  // Replays a recorded pass where there is one, records one where as many rows came before.
  void RunStep(const StepInputs& inputs, const std::function<void()>& operations) override;
  uint64_t replayed_steps() const { return replayed_steps_; }
  const LibraryProducts* library() const { return library_.get(); }  // null: there is none
  void Embed(const EmbedArgs& args) override;
  void RmsNorm(const RmsNormArgs& args) override;
  void Linear(const LinearArgs& args) override;
  void GateUp(const GateUpArgs& args) override;
  void RopeAppend(const RopeAppendArgs& args) override;
  void ChunkAttention(const ChunkAttentionArgs& args) override;
  void SwiGlu(const SwiGluArgs& args) override;
  void Add(const AddArgs& args) override;

  absl::Status Synchronize() override;

  absl::StatusOr<std::unique_ptr<TokenSampler>> MakeTokenSampler(
      const TokenSamplerOptions& options) override;

 private:
  CudaBackend(std::unique_ptr<Runtime> runtime, std::unique_ptr<Stream> stream,
              const CudaOptions& options);

  // Leaves out the kernels for attention that are wrong on this device.
  absl::Status TryAttention(const CudaOptions& options);
  // Why a launch was refused, which is forgotten; "" where the device has failed. One must have
  // been.
  std::string TakeRefusal();
  // Whether the operation may go on.
  bool Enter();
  void Keep(absl::Status status) { failure_.Keep(std::move(status)); }
  void KeepRefusal();  // BackendFailure
  void PutForwardPass(const StepInputs& inputs, const std::function<void()>& operations);
  // The recorded pass for the step that has begun; null where its operations are to be called.
  Graph* GraphOrNull(const StepInputs& inputs, const std::function<void()>& operations);
  void OpenLibrary(const LibraryProducts::Options& options);
  void AddShape(const DeviceMatrix& weight);
  void AddWarning(std::string_view warning);
  void Multiply(const LinearWeight& weight, const TensorView& x, const TensorView& out,
                bool accumulate, bool reproducible);
  // For an operation whose result x is what a product with `reader` reads next; null: none does.
  RoundedRows OfferRounded(const TensorView& x, const LinearWeight* reader);
  absl::Status MultiplyByOwnKernel(GemmLaunch launch, bool exact, bool reproducible);

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Stream> stream_;
  CudaDevice device_;
  BackendInfo info_;
  RoundedX rounded_x_;
  bool behind_rope_append_ = false;  // the operation before
  StepArrays arrays_;
  AttentionLauncher attention_;
  StepGraphs graphs_;
  StepClock clock_;
  uint64_t replayed_steps_ = 0;
  DeviceBuffer gate_;                 // [rows, ffn] of GateUp
  DeviceBuffer split_sums_;           // of products of few rows
  std::vector<DeviceMatrix> shapes_;  // of the weights packed so far, each once, without those
                                      // that are `exact`: what split_sums_ may be for
  std::unique_ptr<LibraryProducts> library_;
  BackendFailure failure_;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_CUDA_BACKEND_H_
