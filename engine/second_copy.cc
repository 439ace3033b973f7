#include "engine/second_copy.h"

#include <algorithm>
#include <cstdint>

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
  if (question.compute != kernels::ComputeDType::kAuto &&
      question.compute != kernels::ComputeDType::kQuantized) {
    return none("backend.compute_dtype asks for another arithmetic");
  }
  const size_t bytes = BytesOfCopies(source, backend);
  if (bytes == 0) {
    return none(absl::StrCat("on ", backend.name, " ", backend.isa,
                             " none of the model's weights has a second form that is faster"));
  }
  if (!on && bytes > std::min(question.total_bytes / kAutoShare, question.room_bytes)) return {};
  return {.bytes = bytes};
}

}  // namespace refrain::engine
