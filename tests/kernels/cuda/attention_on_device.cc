#include "tests/kernels/cuda/attention_on_device.h"

#include <algorithm>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/cuda/emulated_attention.h"

namespace refrain::kernels {
namespace {

int NumChunks(const ChunkAttentionArgs& args) {
  int32_t chunks = 0;
  for (const RunChunk& chunk : args.plan.chunks) chunks = std::max(chunks, chunk.chunk + 1);
  return chunks;
}

}  // namespace

AttentionOnDevice::AttentionOnDevice(Backend& backend, AttentionScenario& scenario)
    : args(scenario.Args(host_out)),
      pool(backend, cuda::RepackForCuda(args.kv, NumChunks(args), args.layer)),
      q(backend, scenario.q()),
      out(backend, host_out) {
  args.kv.base = pool.data();
  args.kv.packing = KvPacking::kSwizzledRows;
  args.q.data = q.data();
  args.out.data = out.data();
}

StepInputs AttentionOnDevice::Inputs(uint64_t generation) const {
  StepInputs inputs;
  inputs.steps = args.steps;
  inputs.plan = args.plan;
  inputs.plan_generation = generation;
  return inputs;
}

std::vector<float> ReferenceAttention(AttentionScenario& scenario) {
  std::vector<float> want;
  ReferenceBackend().ChunkAttention(scenario.Args(want));
  return want;
}

}  // namespace refrain::kernels
