#ifndef REFRAIN_TOOLS_BENCH_LAYER_GATE_H_
#define REFRAIN_TOOLS_BENCH_LAYER_GATE_H_

#include <functional>
#include <memory>
#include <utility>

#include "tests/support/forwarding_backend.h"

namespace refrain::bench {

// A back end that asks before it puts a layer's attention on the device, as one would whose K and V
// are on their way there. Not asked where a recorded pass is replayed. Threads as Backend says.
class LayerGate final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // May be empty: nobody is asked.
  void AskBeforeAttention(std::function<void(int layer)> may_go) { may_go_ = std::move(may_go); }

  void RunStep(const kernels::StepInputs& inputs,
               const std::function<void()>& operations) override {
    on().RunStep(inputs, operations);
  }
  void ChunkAttention(const kernels::ChunkAttentionArgs& args) override {
    if (may_go_) may_go_(args.layer);
    on().ChunkAttention(args);
  }
  absl::StatusOr<std::unique_ptr<kernels::TokenSampler>> MakeTokenSampler(
      const kernels::TokenSamplerOptions& options) override {
    return on().MakeTokenSampler(options);
  }

 private:
  std::function<void(int layer)> may_go_;
};

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_LAYER_GATE_H_
