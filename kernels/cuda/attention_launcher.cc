#include "kernels/cuda/attention_launcher.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/scratch.h"

namespace refrain::kernels::cuda {
namespace {

template <class T>
bool SameSpan(std::span<const T> a, std::span<const T> b) {
  return a.data() == b.data() && a.size() == b.size();
}

// Partial states need room for a step's worst; a little more than now saves growing again.
constexpr int32_t kPartialRowsAtATime = 256;
// Likewise, and of four bytes each.
constexpr size_t kLeastCounters = 1024;

}  // namespace

AttentionDevice AttentionDeviceOf(const DeviceProperties& properties) {
  return {properties.capability(), properties.multiprocessors, properties.shared_bytes_per_block,
          properties.shared_bytes_per_multiprocessor};
}

bool AttentionLauncher::Key::operator==(const Key& other) const {
  const AttentionShapeInfo &a = shape, &b = other.shape;
  return mode == other.mode && a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads &&
         a.head_dim == b.head_dim && a.chunk_tokens == b.chunk_tokens && a.kv_dtype == b.kv_dtype &&
         a.reproducible == b.reproducible;
}

AttentionLauncher::AttentionLauncher(Runtime& runtime, Stream& stream, Device& device,
                                     StepArrays& arrays, std::optional<AttentionKernel> kernel)
    : stream_(stream),
      device_(device),
      arrays_(arrays),
      properties_(AttentionDeviceOf(runtime.properties())),
      kernel_(kernel),
      list_buffer_(runtime, stream, device),
      positions_(runtime, stream, device) {}

void AttentionLauncher::UseMultiprocessors(int count) {
  if (count == properties_.num_multiprocessors) return;
  properties_.num_multiprocessors = count;
  key_.reset();
}

void AttentionLauncher::BeginStep(const StepInputs& inputs) {
  announced_ = inputs.plan;
  generation_ = inputs.plan_generation;
  pass_ = inputs.pass;
  destinations_ = inputs.destinations;
  ++step_;
}

bool AttentionLauncher::IsAnnounced(const AttentionPlanView& plan) const {
  return announced_.has_value() && SameSpan(plan.runs, announced_->runs) &&
         SameSpan(plan.chunks, announced_->chunks) && SameSpan(plan.slots, announced_->slots);
}

AttentionLauncher::Key AttentionLauncher::KeyOf(const ChunkAttentionArgs& args) {
  const KvPoolView& kv = args.kv;
  return {
      {args.num_heads, kv.num_kv_heads, kv.head_dim, kv.chunk_tokens, kv.dtype, args.reproducible},
      args.mode};
}

bool AttentionLauncher::Alike(const ChunkAttentionArgs& a, const ChunkAttentionArgs& b) {
  return KeyOf(a) == KeyOf(b) && a.kv == b.kv && a.window_tokens == b.window_tokens;
}

absl::Status AttentionLauncher::Reserve(const ChunkAttentionArgs& args) {
  list_generation_.reset();
  if (absl::Status status = Plan(args, KeyOf(args)); !status.ok()) return status;
  if (args.window_tokens == 0) return absl::OkStatus();
  positions_step_.reset();
  return positions_.ReserveFor(args.kv, args.plan.chunks);
}

absl::Status AttentionLauncher::HaveList(const ChunkAttentionArgs& args) {
  const Key key = KeyOf(args);
  const bool announced = IsAnnounced(args.plan);
  const bool on_device = announced && key_.has_value() && *key_ == key &&
                         list_generation_ == generation_ && tiles_->Serves(args.steps);
  if (!on_device) {
    list_generation_.reset();
    if (absl::Status status = Plan(args, key); !status.ok()) return status;
    if (announced) list_generation_ = generation_;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> AttentionLauncher::Prepare(const StepInputs& inputs) {
  if (!launched_.has_value()) return false;
  // Another model's shape and pool are nothing to plan this one's step with.
  if (launched_pass_ == nullptr ? several_shapes_ : launched_pass_ != inputs.pass) return false;
  ChunkAttentionArgs args = *launched_;
  args.plan = inputs.plan;
  args.steps = inputs.steps;
  if (absl::Status status = HaveList(args); !status.ok()) return status;
  if (args.window_tokens > 0) {
    absl::StatusOr<const int32_t*> positions = HavePositions(args);
    if (!positions.ok()) return positions.status();
  }
  return true;
}

absl::Status AttentionLauncher::Launch(const ChunkAttentionArgs& args, bool behind_rope) {
  if (!launched_.has_value() || !Alike(*launched_, args)) {
    // Plans and steps of two models may have the same numbers.
    several_shapes_ = launched_.has_value();
    list_generation_.reset();
    positions_step_.reset();
    launched_pass_ = nullptr;
    ++layout_;
  }
  launched_ = args;
  if (pass_ != nullptr) launched_pass_ = pass_;  // a step without one may be of the same model
  const auto uploads = [this] { return uploads_ + arrays_.loose_uploads(); };
  const uint64_t before = uploads();
  if (absl::Status status = HaveList(args); !status.ok()) return status;
  ChunkAttentionLaunch launch;
  launch.layer = args.layer;
  launch.num_heads = args.num_heads;
  launch.window_tokens = args.window_tokens;
  launch.scale = args.scale;
  launch.reproducible = args.reproducible;
  launch.kv = args.kv;
  launch.tiles = reinterpret_cast<const AttentionTileList*>(list_);
  absl::StatusOr<const SlotStep*> steps = arrays_.Find(args.steps);
  if (!steps.ok()) return steps.status();
  launch.steps = *steps;
  launch.kv.positions = nullptr;
  if (args.window_tokens > 0) {
    absl::StatusOr<const int32_t*> positions = HavePositions(args);
    if (!positions.ok()) return positions.status();
    launch.kv.positions = *positions;
    positions = arrays_.Find(
        std::span<const int32_t>(args.row_positions, static_cast<size_t>(args.q.rows)));
    if (!positions.ok()) return positions.status();
    launch.row_positions = *positions;
  }
  launch.q = static_cast<const float*>(args.q.data);
  launch.q_stride = args.q.stride;
  launch.partials = reinterpret_cast<float*>(partials_.data());
  launch.max_partial_rows = max_partial_rows_;
  launch.counters = reinterpret_cast<int32_t*>(counters_.data());
  launch.out = static_cast<float*>(args.out.data);
  launch.out_stride = args.out.stride;
  // The kernel reads its lists before it waits for the kernel in front, which must not have brought
  // them.
  launch.early = behind_rope && uploads() == before;
  LaunchChunkAttention(stream_, setup_, launch);
  return absl::OkStatus();
}

AttentionSetup AttentionLauncher::SetUp(const AttentionShapeInfo& shape) const {
  const auto may_be = [&](AttentionKernel kernel) {
    return Supports(kernel, shape, properties_) &&
           std::ranges::find(excluded_, kernel) == excluded_.end();
  };
  for (const AttentionKernel kernel : kAttentionKernels) {  // the fastest first
    if (kernel_.has_value() && kernel > *kernel_) continue;
    if (may_be(kernel)) return SetUpAttention(kernel, shape, properties_);
  }
  return SetUpAttention(AttentionKernel::kGeneric, shape, properties_);
}

absl::Status AttentionLauncher::Plan(const ChunkAttentionArgs& args, const Key& key) {
  ++uploads_;
  if (!key_.has_value() || !(*key_ == key)) {
    max_partial_rows_ = 0;
    setup_ = SetUp(key.shape);
    tiles_ = std::make_unique<AttentionTiles>(setup_.limits);
    key_ = key;
  }
  tiles_->Plan(args.plan, args.steps, key.mode, key.shape.reproducible);
  absl::StatusOr<const std::byte*> list = list_buffer_.Upload(tiles_->bytes());
  if (!list.ok()) return list.status();
  list_ = *list;
  return ReserveScratch(key);
}

absl::Status AttentionLauncher::ReserveScratch(const Key& key) {
  // How partial states lie depends on how many there is room for, which recorded launches know.
  const int32_t rows =
      std::max(max_partial_rows_, (tiles_->num_partial_rows() + kPartialRowsAtATime) /
                                      kPartialRowsAtATime * kPartialRowsAtATime);
  const int32_t before = std::exchange(max_partial_rows_, 0);
  const size_t bytes =
      PartialStateFloats(rows, key.shape.num_heads, key.shape.head_dim) * sizeof(float);
  absl::Status status = cuda::ReserveScratch(device_, bytes, bytes, &partials_);
  if (!status.ok()) return status;
  if (rows != before) ++layout_;  // what was there for another shape may have been room enough
  max_partial_rows_ = rows;
  const size_t counter_bytes = std::max(kLeastCounters, tiles_->num_counters()) * sizeof(int32_t);
  // Fresh memory is zeros, and every launch leaves zeros behind.
  return cuda::ReserveScratch(device_, counter_bytes, 2 * counter_bytes, &counters_);
}

absl::StatusOr<const int32_t*> AttentionLauncher::HavePositions(const ChunkAttentionArgs& args) {
  const bool announced = IsAnnounced(args.plan);
  if (announced && positions_step_ == step_) return positions_table_;
  // Since the step before, the same plan's chunks were written on by the new rows at most.
  const bool follows = announced && !destinations_.empty() && positions_step_.has_value() &&
                       *positions_step_ + 1 == step_ && positions_generation_ == generation_;
  positions_step_.reset();
  ++uploads_;
  absl::StatusOr<const int32_t*> table = follows
                                             ? positions_.BringWritten(args.kv, destinations_)
                                             : positions_.BringChunks(args.kv, args.plan.chunks);
  if (!table.ok()) return table.status();
  positions_table_ = *table;
  if (announced) {
    positions_step_ = step_;
    positions_generation_ = generation_;
  }
  return positions_table_;
}

}  // namespace refrain::kernels::cuda
