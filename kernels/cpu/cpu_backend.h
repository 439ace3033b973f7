#ifndef REFRAIN_KERNELS_CPU_CPU_BACKEND_H_
#define REFRAIN_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/activation_buffer.h"
#include "kernels/cpu/argmax_search.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/level_choice.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/weight_memory.h"

namespace refrain::kernels::cpu {

struct CpuOptions {
  int threads = 0;           // 0 = all cores this process may use
  std::string isa = "auto";  // or a level's name (isa.h)
};

// The operations on the host's processors, with the instructions of one level and a pool of
// threads of its own. Operations are finished when they return; Synchronize has nothing to do.
// Weights and buffers must not outlive it. Thread and failure rules are Backend's.
class CpuBackend final : public Backend {
 public:
  // Checks the level first (level_check.h). One that computes wrong results is passed over for the
  // fastest below, with a warning in info(), or refused with FAILED_PRECONDITION if `isa` names it.
  //
  // INVALID_ARGUMENT or FAILED_PRECONDITION for an `isa` that does not exist or that this machine
  // has not got, INVALID_ARGUMENT for a negative number of threads.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(const CpuOptions& options);
  // The same on a processor and by a check that the caller gives. This machine must be able to run
  // all of its levels that the check lets pass.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(const CpuOptions& options,
                                                            const Processor& processor,
                                                            const LevelChecker& check);

  const BackendInfo& info() const override { return info_; }
  Device& device() override { return device_; }

  absl::StatusOr<std::unique_ptr<LinearWeight>> PackLinear(std::span<const WeightSlice> slices,
                                                           const PackOptions& options) override;

  void Embed(const EmbedArgs& args) override;
  void RmsNorm(const RmsNormArgs& args) override;
  void Linear(const LinearArgs& args) override;
  void LinearArgMax(const LinearArgMaxArgs& args) override;
  void GateUp(const GateUpArgs& args) override;
  void RopeAppend(const RopeAppendArgs& args) override;
  void ChunkAttention(const ChunkAttentionArgs& args) override;
  void SwiGlu(const SwiGluArgs& args) override;
  void Add(const AddArgs& args) override;

  absl::Status Synchronize() override { return absl::OkStatus(); }
  void ForEachOnHost(int64_t count, const std::function<void(int64_t)>& fn) override;

 private:
  CpuBackend(Isa isa, int threads);

  Isa isa_;
  ThreadPool pool_;
  BackendInfo info_;
  CpuDevice device_;
  WeightMemory weight_memory_;
  ActivationBuffer activations_;
  AttentionScratch attention_scratch_;
  ArgMaxSearch argmax_search_;
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_CPU_BACKEND_H_
