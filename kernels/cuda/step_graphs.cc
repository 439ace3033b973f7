#include "kernels/cuda/step_graphs.h"

#include <algorithm>
#include <utility>

namespace refrain::kernels::cuda {

void StepGraphs::Forget(uint64_t layout) {
  const auto old = [layout](const Recorded& one) { return one.key.layout != layout; };
  if (std::none_of(recorded_.begin(), recorded_.end(), old)) return;
  runtime_.Synchronize(stream_).IgnoreError();  // kept, and reported by the back end
  recorded_.remove_if(old);
}

Graph* StepGraphs::FindOrNull(const Key& key) {
  Forget(key.layout);
  const auto found = std::find_if(recorded_.begin(), recorded_.end(),
                                  [&](const Recorded& one) { return one.key == key; });
  if (found == recorded_.end()) return nullptr;
  recorded_.splice(recorded_.begin(), recorded_, found);
  return found->graph.get();
}

bool StepGraphs::WorthRecording(const Key& key) {
  const bool again = before_ == key;
  before_ = key;
  if (!again || key.rows > kMostRows) return false;
  return std::none_of(recorded_.begin(), recorded_.end(),
                      [&](const Recorded& one) { return one.key == key; });
}

Graph* StepGraphs::RecordOrNull(const Key& key, const std::function<void()>& operations,
                                const std::function<bool()>& may_keep) {
  std::unique_ptr<Graph> graph;
  if (!stream_.failure().has_value() && runtime_.BeginCapture(stream_).ok()) {
    operations();
    absl::StatusOr<std::unique_ptr<Graph>> ended = runtime_.EndCapture(stream_);
    if (ended.ok() && may_keep()) graph = *std::move(ended);
    // A call that must not be recorded has the device refuse whatever comes behind it.
    stream_.ForgetFailure();
  }
  if (recorded_.size() == kMostGraphs) {
    runtime_.Synchronize(stream_).IgnoreError();
    recorded_.pop_back();
  }
  recorded_.push_front({key, std::move(graph)});
  return recorded_.front().graph.get();
}

}  // namespace refrain::kernels::cuda
