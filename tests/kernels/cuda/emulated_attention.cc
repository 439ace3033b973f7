#include "tests/kernels/cuda/emulated_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cuda/emulated/emulated_runtime.h"
#include "kernels/cuda/kv_packing.h"
#include "kernels/reference/half_float.h"
#include "kernels/reference/kv_element.h"

namespace refrain::kernels::cuda {
namespace {

AttentionDevice Device(int num_multiprocessors) {
  AttentionDevice device;
  device.compute_capability = 90;
  device.num_multiprocessors = num_multiprocessors;
  device.shared_bytes_per_block = 227 << 10;
  // One block of any kernel on each.
  device.shared_bytes_per_multiprocessor = 1;
  return device;
}

void Store(DType dtype, float value, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  if (dtype == DType::kF8E4M3) {
    *to = std::byte{F32ToE4m3(value)};
    return;
  }
  const uint16_t bits = dtype == DType::kF16 ? F32ToF16(value) : F32ToBf16(value);
  std::memcpy(to, &bits, sizeof(bits));
}

}  // namespace

const char* Name(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::kGeneric:
      return "generic";
    case AttentionKernel::kMma:
      return "mma";
    case AttentionKernel::kHopper:
      break;
  }
  return "hopper";
}

int NumChunks(const AttentionPlanView& plan) {
  int32_t most = -1;
  for (const RunChunk& chunk : plan.chunks) most = std::max(most, chunk.chunk);
  return most + 1;
}

std::vector<std::byte> RepackForCuda(const KvPoolView& pool, int num_chunks, int layer) {
  const int bytes = Traits(pool.dtype).block_bytes;
  // The last byte is the last layer's last: reading too far is seen.
  std::vector<std::byte> packed(num_chunks * pool.chunk_bytes, std::byte{0xff});
  KvPoolView to = pool;
  to.base = packed.data();
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    for (int h = 0; h < pool.num_kv_heads; ++h) {
      std::byte* const keys = to.Keys(chunk, layer, h);
      std::byte* const values = to.Values(chunk, layer, h);
      for (int token = 0; token < pool.chunk_tokens; ++token) {
        for (int dim = 0; dim < pool.head_dim; ++dim) {
          const int at =
              KvElementIndex(bytes, pool.head_dim, pool.chunk_tokens, token, dim) * bytes;
          const KvElement element = {chunk, layer, h, token, dim};
          Store(pool.dtype, LoadKey(pool, element), keys + at);
          Store(pool.dtype, LoadValue(pool, element), values + at);
        }
      }
    }
  }
  return packed;
}

EmulatedAttention::EmulatedAttention(AttentionKernel kernel, int num_multiprocessors)
    : kernel_(kernel),
      num_multiprocessors_(num_multiprocessors),
      runtime_(emulated::MakeEmulatedRuntime({})),
      stream_(*runtime_->CreateStream(StreamPriority::kNormal)) {}

EmulatedAttention::~EmulatedAttention() = default;

bool EmulatedAttention::Takes(const ChunkAttentionArgs& args) const {
  return Supports(kernel_, ShapeOf(args), Device(num_multiprocessors_));
}

AttentionShapeInfo EmulatedAttention::ShapeOf(const ChunkAttentionArgs& args) {
  return {args.num_heads,       args.kv.num_kv_heads, args.kv.head_dim,
          args.kv.chunk_tokens, args.kv.dtype,        args.reproducible};
}

void EmulatedAttention::SetPool(const KvPoolView& pool, int num_chunks, int layer) {
  pool_ = RepackForCuda(pool, num_chunks, layer);
}

void EmulatedAttention::UpdateTiles(const ChunkAttentionArgs& args, const AttentionSetup& setup) {
  const auto same = [](const auto& a, const auto& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
  };
  if (tiles_ != nullptr && planned_.mode == args.mode &&
      planned_.reproducible == args.reproducible && same(planned_.runs, args.plan.runs) &&
      same(planned_.chunks, args.plan.chunks) && same(planned_.slots, args.plan.slots) &&
      tiles_->Serves(args.steps)) {
    return;
  }
  planned_ = {{args.plan.runs.begin(), args.plan.runs.end()},
              {args.plan.chunks.begin(), args.plan.chunks.end()},
              {args.plan.slots.begin(), args.plan.slots.end()},
              args.mode,
              args.reproducible};
  if (tiles_ == nullptr) tiles_ = std::make_unique<AttentionTiles>(setup.limits);
  tiles_->Plan(args.plan, args.steps, args.mode, args.reproducible);
  ++lists_made_;
}

absl::Status EmulatedAttention::Attend(const ChunkAttentionArgs& args) {
  if (absl::Status status = runtime_->MakeCurrent(); !status.ok()) return status;
  const AttentionSetup setup = SetUpAttention(kernel_, ShapeOf(args), Device(num_multiprocessors_));
  UpdateTiles(args, setup);

  ChunkAttentionLaunch launch;
  launch.layer = args.layer;
  launch.num_heads = args.num_heads;
  launch.window_tokens = args.window_tokens;
  launch.scale = args.scale;
  launch.reproducible = args.reproducible;
  launch.kv = args.kv;
  const std::vector<std::byte> packed =
      pool_.empty() ? RepackForCuda(args.kv, NumChunks(args.plan), args.layer)
                    : std::vector<std::byte>();
  launch.kv.base = const_cast<std::byte*>((pool_.empty() ? packed : pool_).data());
  const std::vector<std::byte> list(tiles_->bytes().begin(), tiles_->bytes().end());
  launch.tiles = reinterpret_cast<const AttentionTileList*>(list.data());
  const std::vector<SlotStep> steps(args.steps.begin(), args.steps.end());
  launch.steps = steps.data();
  launch.row_positions = args.row_positions;
  launch.q = args.q.F32Row(0);
  launch.q_stride = args.q.stride;
  launch.max_partial_rows = tiles_->num_partial_rows();
  // NaN: a part that nobody wrote is seen.
  std::vector<float> partials(
      PartialStateFloats(launch.max_partial_rows, args.num_heads, args.kv.head_dim), NAN);
  launch.partials = partials.data();
  std::vector<int32_t> counters(tiles_->num_counters(), 0);
  launch.counters = counters.data();
  launch.out = args.out.F32Row(0);
  launch.out_stride = args.out.stride;
  LaunchChunkAttention(*stream_, setup, launch);
  const absl::Status status = runtime_->Synchronize(*stream_);
  if (!status.ok()) return status;
  if (std::ranges::any_of(counters, [](int32_t count) { return count != 0; })) {
    return absl::InternalError("counters are not zero after the launch");
  }
  return absl::OkStatus();
}

}  // namespace refrain::kernels::cuda
