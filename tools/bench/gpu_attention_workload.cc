#include "tools/bench/gpu_attention_workload.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>

#include "kernels/cuda/kv_packing.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"

namespace refrain::bench {

using kernels::DType;
using kernels::KvPoolView;
namespace gpu = kernels::cuda;

namespace {

constexpr int kElementBytes = 2;

gpu::AttentionDevice DescribeDevice(const gpu::DeviceProperties& properties) {
  gpu::AttentionDevice device;
  device.compute_capability = properties.capability();
  device.num_multiprocessors = properties.multiprocessors;
  device.shared_bytes_per_block = properties.shared_bytes_per_block;
  device.shared_bytes_per_multiprocessor = properties.shared_bytes_per_multiprocessor;
  return device;
}

size_t LayerBytes(const GpuAttentionShape& shape) {
  const size_t bytes =
      size_t{2} * shape.num_kv_heads * shape.chunk_tokens * shape.head_dim * kElementBytes;
  return (bytes + 4095) / 4096 * 4096;
}

}  // namespace

PatternPool::PatternPool(BenchDevice& device, size_t bytes, DType dtype)
    : bytes_(bytes), dtype_(dtype) {
  // A prime number of 16-byte units, at most 8 MiB.
  constexpr size_t kUnits = 524287;
  pattern_.resize(std::min(kUnits * 8, std::max<size_t>(bytes / kElementBytes / 4, 8) / 8 * 8));
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (uint16_t& bits : pattern_) {
    const float x = normal(random);
    bits = dtype == DType::kF16 ? kernels::F32ToF16(x) : kernels::F32ToBf16(x);
  }
  data_ = device.Allocate(bytes);
  const size_t period = pattern_.size() * kElementBytes;
  device.CopyIn(data_, std::as_bytes(std::span(pattern_)).first(std::min(period, bytes)));
  for (size_t filled = period; filled < bytes; filled *= 2) {
    MustBeOk(device.runtime().CopyAsync(data_ + filled, data_, std::min(filled, bytes - filled),
                                        device.stream()));
  }
  device.Synchronize();
}

double PatternPool::At(size_t offset) const {
  const uint16_t bits = pattern_[offset / kElementBytes % pattern_.size()];
  return dtype_ == DType::kF16 ? kernels::F16ToF32(bits) : kernels::Bf16ToF32(bits);
}

size_t PatternPool::Period(size_t bytes) const {
  const size_t period = pattern_.size() * kElementBytes;
  return bytes / period * period;
}

double GpuAttentionShape::PhysicalKvBytes() const {
  return static_cast<double>(NumChunks()) * chunk_tokens * 2 * num_kv_heads * head_dim *
         kElementBytes;
}

double GpuAttentionShape::Flops() const {
  double pairs = 0;
  for (int row = 0; row < rows; ++row) pairs += keys - rows + row + 1;
  return 4.0 * pairs * slots * num_heads * head_dim;
}

GpuAttentionWorkload::GpuAttentionWorkload(BenchDevice& device, const PatternPool& pool,
                                           const GpuAttentionShape& shape, int layers)
    : device_(device), pool_(pool), shape_(shape), layers_(layers) {
  FillPlan();
  const gpu::AttentionShapeInfo info = {shape.num_heads,    shape.num_kv_heads, shape.head_dim,
                                        shape.chunk_tokens, pool.dtype(),       false};
  setup_ = gpu::SetUpAttention(info, DescribeDevice(device.runtime().properties()));
  tiles_ = std::make_unique<gpu::AttentionTiles>(setup_.limits);
  tiles_->Plan({runs_, chunks_, run_slots_}, steps_, shape.mode, /*reproducible=*/false);

  const int64_t cols = int64_t{shape.num_heads} * shape.head_dim;
  const int64_t rows = int64_t{shape.slots} * shape.rows;
  q_.resize(rows * cols);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& x : q_) x = normal(random);

  const auto keep = [&](auto* data) {
    memory_.push_back(reinterpret_cast<std::byte*>(data));
    return data;
  };
  launch_.num_heads = shape.num_heads;
  launch_.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  launch_.kv.base = pool.data();
  launch_.kv.head_bytes = size_t{1} * shape.chunk_tokens * shape.head_dim * kElementBytes;
  launch_.kv.v_offset_bytes = shape.num_kv_heads * launch_.kv.head_bytes;
  launch_.kv.layer_bytes = LayerBytes(shape);
  launch_.kv.chunk_bytes = layers * launch_.kv.layer_bytes;
  launch_.kv.dtype = pool.dtype();
  launch_.kv.chunk_tokens = shape.chunk_tokens;
  launch_.kv.num_kv_heads = shape.num_kv_heads;
  launch_.kv.head_dim = shape.head_dim;
  launch_.tiles =
      reinterpret_cast<const gpu::AttentionTileList*>(keep(device.Upload(tiles_->bytes())));
  launch_.steps = keep(device.Upload(std::span<const kernels::SlotStep>(steps_)));
  launch_.q = keep(device.Upload(std::span<const float>(q_)));
  launch_.q_stride = launch_.out_stride = cols;
  launch_.early = true;  // behind another of its kind, its lists copied long before
  launch_.max_partial_rows = tiles_->num_partial_rows();
  launch_.partials = reinterpret_cast<float*>(keep(
      device.Allocate(sizeof(float) * gpu::PartialStateFloats(launch_.max_partial_rows,
                                                              shape.num_heads, shape.head_dim))));
  const std::vector<int32_t> zeros(tiles_->num_counters(), 0);
  launch_.counters = keep(device.Upload(std::span<const int32_t>(zeros)));
  launch_.out = reinterpret_cast<float*>(keep(device.Allocate(q_.size() * sizeof(float))));
}

GpuAttentionWorkload::~GpuAttentionWorkload() {
  for (std::byte* data : memory_) device_.Release(data);
}

size_t GpuAttentionWorkload::PoolBytes(const GpuAttentionShape& shape, int layers) {
  return shape.NumChunks() * LayerBytes(shape) * layers;
}

void GpuAttentionWorkload::FillPlan() {
  const int32_t c = shape_.chunk_tokens;
  const int32_t shared = shape_.shared_keys / c;
  const int32_t own = shape_.keys / c - shared;
  if (shared > 0) {
    for (int32_t i = 0; i < shared; ++i) chunks_.push_back({i, i * c});
    for (int slot = 0; slot < shape_.slots; ++slot) {
      run_slots_.push_back({slot, 0, own == 0 ? kernels::kOpenEnd : shape_.shared_keys});
    }
    runs_.push_back({0, shared, 0, shape_.slots});
  }
  for (int slot = 0; slot < shape_.slots; ++slot) {
    if (own > 0) {
      const auto begin = static_cast<int32_t>(chunks_.size());
      for (int32_t i = 0; i < own; ++i) chunks_.push_back({shared + slot * own + i, i * c});
      const auto entry = static_cast<int32_t>(run_slots_.size());
      run_slots_.push_back({slot, shape_.shared_keys, kernels::kOpenEnd});
      runs_.push_back({begin, begin + own, entry, entry + 1});
    }
    steps_.push_back({shape_.rows, slot * shape_.rows, 0, shape_.keys});
  }
}

void GpuAttentionWorkload::Launch(int layer) {
  gpu::ChunkAttentionLaunch launch = launch_;
  launch.layer = layer;
  gpu::LaunchChunkAttention(device_.stream(), setup_, launch);
}

void GpuAttentionWorkload::ClearOutput() {
  const std::vector<float> zeros(q_.size());
  device_.CopyIn(reinterpret_cast<std::byte*>(launch_.out), std::as_bytes(std::span(zeros)));
}

size_t GpuAttentionWorkload::Offset(int32_t chunk, int layer, int kv_head, bool value) const {
  const KvPoolView& kv = launch_.kv;
  return chunk * kv.chunk_bytes + layer * kv.layer_bytes + kv_head * kv.head_bytes +
         (value ? kv.v_offset_bytes : 0);
}

std::vector<double> GpuAttentionWorkload::Exact(int layer, int slot, int row, int head) const {
  const int d = shape_.head_dim, c = shape_.chunk_tokens;
  const int kv_head = head / (shape_.num_heads / shape_.num_kv_heads);
  const float* const q =
      q_.data() + (int64_t{slot} * shape_.rows + row) * shape_.num_heads * d + int64_t{head} * d;
  const int keys = shape_.keys - shape_.rows + row + 1;
  const int32_t shared = shape_.shared_keys / c, own = shape_.keys / c - shared;
  const auto chunk_of = [&](int key) {
    return key / c < shared ? key / c : shared + slot * own + key / c - shared;
  };
  const auto element = [&](int key, int dim, bool value) {
    const size_t index = gpu::KvElementIndex(kElementBytes, d, c, key % c, dim);
    return pool_.At(Offset(chunk_of(key), layer, kv_head, value) + index * kElementBytes);
  };
  std::vector<double> scores(keys);
  for (int key = 0; key < keys; ++key) {
    for (int dim = 0; dim < d; ++dim) scores[key] += q[dim] * element(key, dim, false);
    scores[key] *= launch_.scale;
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> out(d);
  for (int key = 0; key < keys; ++key) {
    const double weight = std::exp(scores[key] - most);
    sum += weight;
    for (int dim = 0; dim < d; ++dim) out[dim] += weight * element(key, dim, true);
  }
  for (double& x : out) x /= sum;
  return out;
}

double GpuAttentionWorkload::LargestError() {
  const int d = shape_.head_dim;
  double largest = 0;
  for (const int layer : std::set<int>{0, layers_ - 1}) {
    Launch(layer);
    device_.Synchronize();
    const std::vector<float> got = Output();
    for (const int slot : std::set<int>{0, shape_.slots / 2, shape_.slots - 1}) {
      for (const int row : std::set<int>{0, shape_.rows - 1}) {
        for (const int head : std::set<int>{0, shape_.num_heads / 2, shape_.num_heads - 1}) {
          const std::vector<double> want = Exact(layer, slot, row, head);
          const float* const own =
              got.data() + ((int64_t{slot} * shape_.rows + row) * shape_.num_heads + head) * d;
          double distance = 0, length = 0;
          for (int dim = 0; dim < d; ++dim) {
            distance += (own[dim] - want[dim]) * (own[dim] - want[dim]);
            length += want[dim] * want[dim];
          }
          if (std::isnan(distance)) return distance;
          largest = std::max(largest, std::sqrt(distance / length));
        }
      }
    }
  }
  return largest;
}

}  // namespace refrain::bench
