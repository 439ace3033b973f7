#ifndef REFRAIN_TESTS_KERNELS_CUDA_ATTENTION_ON_DEVICE_H_
#define REFRAIN_TESTS_KERNELS_CUDA_ATTENTION_ON_DEVICE_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/conformance/attention_scenario.h"
#include "tests/kernels/conformance/device_array.h"

namespace refrain::kernels {

// A scenario's call of ChunkAttention with everything that is big in a CUDA back end's memory, K
// and V packed as it wants them. Back end and scenario outlive it.
struct AttentionOnDevice {
  AttentionOnDevice(Backend& backend, AttentionScenario& scenario);

  StepInputs Inputs(uint64_t generation) const;

  std::vector<float> host_out;
  ChunkAttentionArgs args;
  DeviceArray<std::byte> pool;
  DeviceFloats q, out;
};

std::vector<float> ReferenceAttention(AttentionScenario& scenario);

}  // namespace refrain::kernels

#endif  // REFRAIN_TESTS_KERNELS_CUDA_ATTENTION_ON_DEVICE_H_
