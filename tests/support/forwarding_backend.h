#ifndef REFRAIN_TESTS_SUPPORT_FORWARDING_BACKEND_H_
#define REFRAIN_TESTS_SUPPORT_FORWARDING_BACKEND_H_

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "kernels/backend.h"

namespace refrain::testing {

// A back end that leaves every operation to another one; a test changes one of them. Steps are
// never recorded, and tokens are never sampled by it.
class ForwardingBackend : public kernels::Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<kernels::Backend> on) : on_(std::move(on)) {}

  const kernels::BackendInfo& info() const override { return on_->info(); }
  kernels::Device& device() override { return on_->device(); }
  absl::StatusOr<std::unique_ptr<kernels::LinearWeight>> PackLinear(
      std::span<const kernels::WeightSlice> slices, const kernels::PackOptions& options) override {
    return on_->PackLinear(slices, options);
  }
  absl::Status ReserveFor(const kernels::StepShape& step) override { return on_->ReserveFor(step); }
  void BeginStep(const kernels::StepInputs& inputs) override { on_->BeginStep(inputs); }
  void Embed(const kernels::EmbedArgs& args) override { on_->Embed(args); }
  void RmsNorm(const kernels::RmsNormArgs& args) override { on_->RmsNorm(args); }
  void Linear(const kernels::LinearArgs& args) override { on_->Linear(args); }
  void LinearArgMax(const kernels::LinearArgMaxArgs& args) override { on_->LinearArgMax(args); }
  void GateUp(const kernels::GateUpArgs& args) override { on_->GateUp(args); }
  void RopeAppend(const kernels::RopeAppendArgs& args) override { on_->RopeAppend(args); }
  void ChunkAttention(const kernels::ChunkAttentionArgs& args) override {
    on_->ChunkAttention(args);
  }
  void SwiGlu(const kernels::SwiGluArgs& args) override { on_->SwiGlu(args); }
  void Add(const kernels::AddArgs& args) override { on_->Add(args); }
  absl::Status Synchronize() override { return on_->Synchronize(); }
  void ForEachOnHost(int64_t count, const std::function<void(int64_t)>& fn) override {
    on_->ForEachOnHost(count, fn);
  }

 protected:
  kernels::Backend& on() { return *on_; }

 private:
  const std::unique_ptr<kernels::Backend> on_;
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_FORWARDING_BACKEND_H_
