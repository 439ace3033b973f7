#ifndef REFRAIN_KERNELS_CUDA_STEP_GRAPHS_H_
#define REFRAIN_KERNELS_CUDA_STEP_GRAPHS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "kernels/cuda/runtime.h"

namespace refrain::kernels::cuda {

// Recorded forward passes, one for each number of rows that keeps coming: some hundred launches
// become one, so that the host has a step on the device before the device is through with the one
// before. A pass may be recorded when it launches kernels and nothing else, and replayed as long as
// everything its kernels were told lies where it lay: `layout` says so, and a pass of another one
// is forgotten.
//
// States of a number of rows: new -> seen (the step before had as many) -> recorded. Passes that
// were not used for longest are given up for new ones. Engine thread. Failure: Record's says that
// nothing ran; the pass is then not tried again before the layout changes.
class StepGraphs {
 public:
  // What passes are told apart by.
  struct Key {
    const void* pass = nullptr;
    const int32_t* sampled = nullptr;
    size_t rows = 0;
    size_t slots = 0;
    uint64_t layout = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };
  static constexpr size_t kMostRows = 256;  // longer ones hide their launches by themselves
  static constexpr size_t kMostGraphs = 48;

  StepGraphs(Runtime& runtime, Stream& stream) : runtime_(runtime), stream_(stream) {}

  // Null: nothing is recorded for this key.
  Graph* FindOrNull(const Key& key);
  // Whether the pass with this key, about to run, is worth recording. Call once per step that has
  // no recorded pass.
  bool WorthRecording(const Key& key);
  // Records what `operations` puts on the stream. `may_keep` is asked afterwards whether that was
  // launches alone. Null where it was not, or could not be recorded: nothing has run.
  Graph* RecordOrNull(const Key& key, const std::function<void()>& operations,
                      const std::function<bool()>& may_keep);

 private:
  struct Recorded {
    Key key;
    std::unique_ptr<Graph> graph;  // null: it cannot be recorded
  };

  // Waits until no pass that is to be given up runs.
  void Forget(uint64_t layout);

  Runtime& runtime_;
  Stream& stream_;
  std::list<Recorded> recorded_;  // used last first
  std::optional<Key> before_;     // of the step before, where it had no recorded pass
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_STEP_GRAPHS_H_
