#ifndef REFRAIN_KERNELS_CUDA_STEP_GRAPHS_H_
#define REFRAIN_KERNELS_CUDA_STEP_GRAPHS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

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
// were not used for longest are given up for new ones, and so are those of another layout: as they
// may be running, they end once the stream is through with what was on it then, and nobody waits
// for that. Engine thread. Failure: Record's says that nothing ran; the pass is then not tried
// again before the layout changes.
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
  // So many that each number of rows that recorded steps have may have its own: a row of each slot,
  // and a piece of a prompt. Beyond the most, slots seldom come one by one.
  static constexpr size_t kPieceRows = 16, kLeastKept = 48, kMostKept = 128;
  static constexpr size_t Kept(size_t slots) {
    return std::clamp(slots + kPieceRows, kLeastKept, kMostKept);
  }

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

  // Passes that were given up, and the point behind the last step that any of them may be of.
  struct Retired {
    std::list<Recorded> passes;
    std::unique_ptr<Event> over;
  };

  void Forget(uint64_t layout);
  void Retire(std::list<Recorded> passes);
  // Lets go of what no step runs any more.
  void FreeRetired();
  std::unique_ptr<Event> MarkOrNull();

  Runtime& runtime_;
  Stream& stream_;
  std::list<Recorded> recorded_;  // used last first
  std::list<Retired> retired_;    // the earliest first
  std::vector<std::unique_ptr<Event>> free_events_;
  std::optional<Key> before_;  // of the step before, where it had no recorded pass
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_STEP_GRAPHS_H_
