#include "kernels/cuda/step_graphs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"

namespace refrain::kernels::cuda {

void StepGraphs::Forget(uint64_t layout) {
  std::list<Recorded> old;
  for (auto one = recorded_.begin(); one != recorded_.end();) {
    const auto next = std::next(one);
    if (one->key.layout != layout) old.splice(old.end(), recorded_, one);
    one = next;
  }
  if (!old.empty()) Retire(std::move(old));
}

void StepGraphs::Retire(std::list<Recorded> passes) {
  std::unique_ptr<Event> over = MarkOrNull();
  if (over == nullptr) {
    runtime_.Synchronize(stream_).IgnoreError();  // kept, and reported by the back end
    return;
  }
  retired_.push_back({std::move(passes), std::move(over)});
}

std::unique_ptr<Event> StepGraphs::MarkOrNull() {
  std::unique_ptr<Event> event;
  if (!free_events_.empty()) {
    event = std::move(free_events_.back());
    free_events_.pop_back();
  } else {
    absl::StatusOr<std::unique_ptr<Event>> made = runtime_.CreateEvent();
    if (!made.ok()) return nullptr;
    event = *std::move(made);
  }
  return runtime_.Record(*event, stream_).ok() ? std::move(event) : nullptr;
}

void StepGraphs::FreeRetired() {
  while (!retired_.empty()) {
    const absl::StatusOr<bool> passed = runtime_.HasPassed(*retired_.front().over);
    if (!passed.ok() || !*passed) return;
    free_events_.push_back(std::move(retired_.front().over));
    retired_.pop_front();
  }
}

Graph* StepGraphs::FindOrNull(const Key& key) {
  FreeRetired();
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
  if (recorded_.size() >= Kept(key.slots)) {
    std::list<Recorded> last;
    last.splice(last.end(), recorded_, std::prev(recorded_.end()));
    Retire(std::move(last));
  }
  recorded_.push_front({key, std::move(graph)});
  return recorded_.front().graph.get();
}

}  // namespace refrain::kernels::cuda
