#ifndef REFRAIN_TESTS_ENGINE_UNFORESEEING_BACKEND_H_
#define REFRAIN_TESTS_ENGINE_UNFORESEEING_BACKEND_H_

#include <memory>

#include "tests/support/forwarding_backend.h"

namespace refrain::engine {

// A device that does not know beforehand what steps will need.
class UnforeseeingBackend final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  absl::Status ReserveFor(const kernels::StepShape&) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<kernels::TokenSampler>> MakeTokenSampler(
      const kernels::TokenSamplerOptions& options) override {
    return on().MakeTokenSampler(options);
  }
};

}  // namespace refrain::engine

#endif  // REFRAIN_TESTS_ENGINE_UNFORESEEING_BACKEND_H_
