#include "engine/second_copy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

constexpr size_t kElementBytes = 2;  // f16
constexpr size_t kAutoShare = 10;    // one part of so many of the memory

size_t BytesOfCopies(const WeightSource& source, const kernels::BackendInfo& backend) {
  size_t bytes = 0;
  for (int role = 0; role < kNumTensorRoles; ++role) {
    const auto tensor = static_cast<TensorRole>(role);
    if (!IsPerLayer(tensor)) continue;
    for (int layer = 0; layer < source.config().num_layers; ++layer) {
      const absl::StatusOr<WeightView> view = source.Get(tensor, layer);
      if (!view.ok()) continue;  // optional
      if (std::ranges::find(backend.second_copies, view->dtype) == backend.second_copies.end()) {
        continue;
      }
      bytes += static_cast<size_t>(view->rows) * static_cast<size_t>(view->cols) * kElementBytes;
    }
  }
  return bytes;
}

}  // namespace

SecondCopyPlan PlanSecondCopy(const WeightSource& source, const kernels::BackendInfo& backend,
                              const SecondCopyQuestion& question) {
  const bool on = question.wanted == SecondCopyOption::kOn;
  const auto none = [on](const std::string& because) {
    return SecondCopyPlan{
        .warning = on ? absl::StrCat("model.second_copy = on has no effect: ", because) : ""};
  };
  if (question.wanted == SecondCopyOption::kOff) return {};
  if (question.reproducible) return none("engine.reproducible is on");
  using kernels::ComputeDType;
  const bool int8 = question.compute == ComputeDType::kInt8 && backend.reads_results_in_place;
  if (int8 || question.compute == ComputeDType::kF32 || question.compute == ComputeDType::kBF16) {
    return none("backend.compute_dtype asks for another arithmetic");
  }
  const size_t bytes = BytesOfCopies(source, backend);
  if (bytes == 0) {
    return none(absl::StrCat("none of the model's weights has a second form that is faster on ",
                             backend.name, backend.isa.empty() ? "" : " ", backend.isa));
  }
  const auto but = [](size_t all, size_t part) { return all - std::min(all, part); };
  const size_t room = but(but(question.free_bytes, question.weight_bytes),
                          static_cast<size_t>(question.cache_bytes));
  if (bytes > room) {
    return none(absl::StrCat("the copy needs ", bytes, " bytes, beside the weights",
                             question.cache_bytes > 0 ? " and the KV cache " : " ", room,
                             " are free"));
  }
  if (!on && (!backend.second_copy_measured || bytes > question.free_bytes / kAutoShare)) return {};
  return {.bytes = bytes};
}

}  // namespace refrain::engine
