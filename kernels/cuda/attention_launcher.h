#ifndef REFRAIN_KERNELS_CUDA_ATTENTION_LAUNCHER_H_
#define REFRAIN_KERNELS_CUDA_ATTENTION_LAUNCHER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/chunk_attention.h"
#include "kernels/cuda/kv_positions.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/step_arrays.h"

namespace refrain::kernels::cuda {

AttentionDevice AttentionDeviceOf(const DeviceProperties& properties);

// Attention's host side: from the arguments of the operation to one launch. The tile list is made
// when the plan or the row counts changed and serves all layers and, while it can, later steps; it
// then lies in device memory already, and so do the positions that windows are told by, but for
// those of new tokens. Scratch grows when a list needs more.
//
// Engine thread; what it is made of outlives it. Failure: the status of an upload or an allocation;
// nothing was launched then.
class AttentionLauncher {
 public:
  // The fastest kernel that has a shape is used, but none that is faster than `kernel`.
  AttentionLauncher(Runtime& runtime, Stream& stream, Device& device, StepArrays& arrays,
                    std::optional<AttentionKernel> kernel);
  // The next that has a shape is used in its place; before the first Launch. Not of kGeneric.
  void Exclude(AttentionKernel kernel) { excluded_.push_back(kernel); }
  // Work is cut for so many multiprocessors (at first all) and occupies no more. No step is
  // recorded yet.
  void UseMultiprocessors(int count);

  // Takes the memory that launches with such arguments need; K and V, q and out are not read.
  absl::Status Reserve(const ChunkAttentionArgs& args);

  // The plan that a step is about to use; unannounced plans are taken for new ones each time.
  void BeginStep(const StepInputs& inputs);

  // `behind_rope`: nothing was put on the stream since RopeAppend, which lets others start.
  absl::Status Launch(const ChunkAttentionArgs& args, bool behind_rope = false);

  // Brings to the device what the announced step's launches need beside their arrays, so that
  // launches as of the steps before find it there: a recorded one need not be made again. False:
  // what was launched last is not known to be of the same pass, so that nothing was brought.
  absl::StatusOr<bool> Prepare(const StepInputs& inputs);
  // Another number after every launch that is told something else beside its addresses than the one
  // before: another shape, pool or window, another room for partial states. With the same one,
  // recorded launches may be replayed.
  uint64_t layout() const { return layout_; }
  // How often something of the kind was brought, so far.
  uint64_t uploads() const { return uploads_; }

 private:
  struct Key {  // what a tile list is for, beside plan and steps
    AttentionShapeInfo shape;
    AttentionMode mode = AttentionMode::kTwoPhase;

    bool operator==(const Key& other) const;
  };

  static Key KeyOf(const ChunkAttentionArgs& args);
  // Whether a launch with such arguments goes by the same list and positions, and is told the same
  // beside its arrays.
  static bool Alike(const ChunkAttentionArgs& a, const ChunkAttentionArgs& b);
  bool IsAnnounced(const AttentionPlanView& plan) const;
  // Makes sure that the list on the device is that of the plan.
  absl::Status HaveList(const ChunkAttentionArgs& args);
  absl::Status Plan(const ChunkAttentionArgs& args, const Key& key);
  AttentionSetup SetUp(const AttentionShapeInfo& shape) const;
  absl::Status ReserveScratch(const Key& key);
  // Where the positions of the plan's tokens are on the device; brought once for a step.
  absl::StatusOr<const int32_t*> HavePositions(const ChunkAttentionArgs& args);

  Stream& stream_;
  Device& device_;
  StepArrays& arrays_;
  AttentionDevice properties_;
  const std::optional<AttentionKernel> kernel_;
  std::vector<AttentionKernel> excluded_;

  std::optional<AttentionPlanView> announced_;
  uint64_t generation_ = 0;                  // of the announced plan
  const void* pass_ = nullptr;               // of the announced step
  std::span<const KvSlotRef> destinations_;  // of the step's rows
  uint64_t step_ = 0;

  std::optional<Key> key_;  // of the list that is on the device
  std::optional<uint64_t> list_generation_;
  AttentionSetup setup_;
  std::unique_ptr<AttentionTiles> tiles_;
  UploadBuffer list_buffer_;
  const std::byte* list_ = nullptr;
  KvPositions positions_;
  const int32_t* positions_table_ = nullptr;
  std::optional<uint64_t> positions_step_;  // that they are there for; none: of no announced plan
  uint64_t positions_generation_ = 0;
  DeviceBuffer partials_;
  int32_t max_partial_rows_ = 0;  // that partials_ has room for
  DeviceBuffer counters_;
  std::optional<ChunkAttentionArgs> launched_;  // last; its arrays are gone
  const void* launched_pass_ = nullptr;         // with launches alike; null: none that has a name
  bool several_shapes_ = false;                 // of launches that were not alike
  uint64_t layout_ = 0;
  uint64_t uploads_ = 0;
};

}  // namespace refrain::kernels::cuda

#endif  // REFRAIN_KERNELS_CUDA_ATTENTION_LAUNCHER_H_
