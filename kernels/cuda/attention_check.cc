#include "kernels/cuda/attention_check.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/worse.h"

namespace refrain::kernels::cuda {
namespace {

constexpr int kChunkTokens = 64;
constexpr int kKvHeads = 2, kHeads = 6;
constexpr int32_t kSharedTokens = 2 * kChunkTokens;

// What a slot has behind the shared chunks, the new rows among it. A row is three queries, one for
// each head of a KV head, so that Hopper's tiles are of 3, 12, 27, 33 and 126 queries, all of its
// forms; 126 are as many rows as go into one, with queries in every warp. That slot reads the
// shared chunks, too, alone; the others are 78 queries there. The last one's keys are more than any
// ring holds: the reading warp has to wait for those who compute it and the tile before.
struct OwnTokens {
  int32_t rows, tokens;
};
constexpr OwnTokens kSlots[] = {{1, 10}, {4, 64}, {9, 9}, {11, 64}, {42, 65}, {1, 520}};

constexpr int kHeadDims[] = {64, 96, 128, 256};

// Plan, steps and positions of the trial.
struct Layout {
  std::vector<AttentionRun> runs;
  std::vector<RunChunk> chunks;
  std::vector<RunSlot> slots;
  std::vector<SlotStep> steps;
  std::vector<int32_t> kv_positions;   // [chunks, kChunkTokens]
  std::vector<int32_t> row_positions;  // [rows]

  AttentionPlanView plan() const { return {runs, chunks, slots}; }

  void AddChunks(int32_t tokens, int32_t first_key) {
    for (int32_t token = 0; token < tokens; token += kChunkTokens) {
      chunks.push_back({static_cast<int32_t>(chunks.size()), token});
      for (int32_t i = 0; i < kChunkTokens; ++i) kv_positions.push_back(first_key + token + i);
    }
  }
};

Layout MakeLayout() {
  Layout layout;
  layout.AddChunks(kSharedTokens, 0);
  for (int32_t slot = 0; slot < static_cast<int32_t>(std::size(kSlots)); ++slot) {
    layout.slots.push_back({slot, 0, kSharedTokens});
  }
  const auto num_chunks = [&] { return static_cast<int32_t>(layout.chunks.size()); };
  const auto num_slots = [&] { return static_cast<int32_t>(layout.slots.size()); };
  layout.runs.push_back({0, num_chunks(), 0, num_slots()});
  int32_t slot = 0;
  for (const OwnTokens& own : kSlots) {
    const int32_t chunk_begin = num_chunks(), key_end = kSharedTokens + own.tokens;
    layout.AddChunks(own.tokens, kSharedTokens);
    layout.slots.push_back({slot++, kSharedTokens, kOpenEnd});
    layout.runs.push_back({chunk_begin, num_chunks(), num_slots() - 1, num_slots()});
    layout.steps.push_back(
        {own.rows, static_cast<int32_t>(layout.row_positions.size()), 0, key_end});
    for (int32_t key = key_end - own.rows; key < key_end; ++key) {
      layout.row_positions.push_back(key);
    }
  }
  return layout;
}

// A number of the type from 1/8 to 1, or its negative.
uint16_t RandomElement(DType dtype, uint32_t bits) {
  struct Format {
    int width, mantissa_bits;
    uint32_t exponent_of_half;
  };
  const Format format = dtype == DType::kF16    ? Format{16, 10, 14}
                        : dtype == DType::kBF16 ? Format{16, 7, 126}
                                                : Format{8, 3, 6};
  return static_cast<uint16_t>((bits >> 31 << (format.width - 1)) |
                               ((format.exponent_of_half - bits % 3) << format.mantissa_bits) |
                               (bits >> 8 & ((1u << format.mantissa_bits) - 1)));
}

// So many bytes of them: how they are packed makes no difference.
std::vector<uint16_t> RandomElements(DType dtype, size_t bytes) {
  std::mt19937 random(5);
  std::vector<uint16_t> halves(bytes / 2);
  for (uint16_t& half : halves) {
    half = RandomElement(dtype, static_cast<uint32_t>(random()));
    if (Traits(dtype).block_bytes == 2) continue;
    half = static_cast<uint16_t>(half | RandomElement(dtype, static_cast<uint32_t>(random())) << 8);
  }
  return halves;
}

std::vector<float> RandomQueries(size_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
  std::vector<float> queries(count);
  for (float& query : queries) query = uniform(random);
  return queries;
}

// The greatest distance of a head's output from what it should be, over its length.
double WorstError(std::span<const float> got, std::span<const float> want, size_t head_dim) {
  double worst = 0;
  for (size_t head = 0; head < want.size(); head += head_dim) {
    double error = 0, length = 0;
    for (size_t i = head; i < head + head_dim; ++i) {
      error += std::pow(double{got[i]} - want[i], 2);
      length += std::pow(double{want[i]}, 2);
    }
    const double share = std::sqrt(error / length);
    worst = Worse(worst, share);
  }
  return worst;
}

// Tensor cores round queries and weights to the cache's type, over E4M3 to bf16; a key too many or
// too few moves a head by a tenth and more.
double MostError(DType dtype) { return dtype == DType::kF16 ? 0x1p-8 : 0x1p-5; }

template <class T>
absl::StatusOr<DeviceBuffer> Upload(Device& device, const std::vector<T>& values) {
  absl::StatusOr<DeviceBuffer> buffer = device.Allocate(values.size() * sizeof(T), false);
  if (!buffer.ok()) return buffer;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  absl::Status status = device.CopyFromHost(buffer->data(), bytes.data(), bytes.size());
  if (!status.ok()) return status;
  return buffer;
}

// One head_dim and element type on the device.
class Trial {
 public:
  Trial(const Layout& layout, int num_multiprocessors, Device& device, const AttendFn& attend)
      : layout_(layout),
        num_multiprocessors_(num_multiprocessors),
        device_(device),
        attend_(attend) {}

  absl::Status SetUp(int head_dim, DType dtype) {
    KvPoolView& kv = args_.kv;
    kv.dtype = dtype;
    kv.packing = KvPacking::kSwizzledRows;
    kv.chunk_tokens = kChunkTokens;
    kv.num_kv_heads = kKvHeads;
    kv.head_dim = head_dim;
    kv.head_bytes = static_cast<size_t>(kChunkTokens) * head_dim * Traits(dtype).block_bytes;
    kv.v_offset_bytes = kKvHeads * kv.head_bytes;
    kv.layer_bytes = 2 * kv.v_offset_bytes;  // whole pages already
    kv.chunk_bytes = kv.layer_bytes;
    kv.positions = layout_.kv_positions.data();
    const int64_t rows = static_cast<int64_t>(layout_.row_positions.size());
    const int64_t cols = int64_t{kHeads} * head_dim;
    outputs_.resize(static_cast<size_t>(rows * cols));
    absl::StatusOr<DeviceBuffer> pool =
        Upload(device_, RandomElements(dtype, layout_.chunks.size() * kv.chunk_bytes));
    if (!pool.ok()) return pool.status();
    absl::StatusOr<DeviceBuffer> q = Upload(device_, RandomQueries(outputs_.size()));
    if (!q.ok()) return q.status();
    absl::StatusOr<DeviceBuffer> out =
        device_.Allocate(outputs_.size() * sizeof(float), /*huge_pages=*/false);
    if (!out.ok()) return out.status();
    pool_ = *std::move(pool);
    q_ = *std::move(q);
    out_ = *std::move(out);
    kv.base = pool_.data();
    args_.num_heads = kHeads;
    args_.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    args_.plan = layout_.plan();
    args_.steps = layout_.steps;
    args_.q = F32View(reinterpret_cast<float*>(q_.data()), rows, cols);
    args_.row_positions = layout_.row_positions.data();
    args_.out = F32View(reinterpret_cast<float*>(out_.data()), rows, cols);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> FindFault(AttentionKernel kernel, bool reproducible) {
    args_.reproducible = reproducible;
    for (const int window : {0, 90}) {
      args_.window_tokens = window;
      const absl::StatusOr<std::vector<float>> want =
          Run(AttentionKernel::kGeneric, num_multiprocessors_);
      if (!want.ok()) return want.status();
      // A window hides most of what a ring holds.
      std::vector<int> numbers_of_multiprocessors = {num_multiprocessors_};
      if (window == 0) numbers_of_multiprocessors.push_back(1);
      for (const int multiprocessors : numbers_of_multiprocessors) {
        const absl::StatusOr<std::vector<float>> got = Run(kernel, multiprocessors);
        if (!got.ok()) return got.status();
        const double error = WorstError(*got, *want, static_cast<size_t>(args_.kv.head_dim));
        const double most = MostError(args_.kv.dtype);
        if (error <= most) continue;
        return absl::StrCat(
            "head_dim ", args_.kv.head_dim, ", ", std::string(Traits(args_.kv.dtype).name),
            reproducible ? ", reproducible" : "", window > 0 ? ", sliding window" : "",
            multiprocessors == 1 ? ", one multiprocessor" : "", ": off by ", error,
            " of an output's length; limit ", most);
      }
    }
    return std::string();
  }

 private:
  absl::StatusOr<std::vector<float>> Run(AttentionKernel kernel, int num_multiprocessors) {
    // What the kernel leaves out must not be what the one before it has left there.
    std::vector<float> unwritten(outputs_.size(), NAN);
    absl::Status status = device_.CopyFromHost(
        out_.data(), reinterpret_cast<const std::byte*>(unwritten.data()), out_.bytes());
    if (status.ok()) status = attend_(kernel, num_multiprocessors, args_);
    if (status.ok()) {
      status = device_.CopyToHost(reinterpret_cast<std::byte*>(outputs_.data()), out_.data(),
                                  outputs_.size() * sizeof(float));
    }
    if (!status.ok()) return status;
    return outputs_;
  }

  const Layout& layout_;
  const int num_multiprocessors_;
  Device& device_;
  const AttendFn& attend_;
  DeviceBuffer pool_, q_, out_;
  ChunkAttentionArgs args_;
  std::vector<float> outputs_;
};

}  // namespace

absl::StatusOr<std::string> FindAttentionFault(AttentionKernel kernel,
                                               const AttentionDevice& properties, Device& device,
                                               const AttendFn& attend) {
  return FindAttentionFaultIn(kHeadDims, kernel, properties, device, attend);
}

absl::StatusOr<std::string> FindAttentionFaultIn(std::span<const int> head_dims,
                                                 AttentionKernel kernel,
                                                 const AttentionDevice& properties, Device& device,
                                                 const AttendFn& attend) {
  const Layout layout = MakeLayout();
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    for (const int head_dim : head_dims) {
      Trial trial(layout, properties.num_multiprocessors, device, attend);
      absl::Status status = trial.SetUp(head_dim, dtype);
      if (!status.ok()) return status;
      for (const bool reproducible : {false, true}) {
        const AttentionShapeInfo shape = {kHeads,       kKvHeads, head_dim,
                                          kChunkTokens, dtype,    reproducible};
        if (!Supports(kernel, shape, properties)) continue;
        const absl::StatusOr<std::string> fault = trial.FindFault(kernel, reproducible);
        if (!fault.ok() || !fault->empty()) return fault;
      }
    }
  }
  return std::string();
}

}  // namespace refrain::kernels::cuda
