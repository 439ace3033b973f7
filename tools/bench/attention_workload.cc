#include "tools/bench/attention_workload.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/reference/attention.h"
#include "kernels/reference/half_float.h"
#include "kernels/reference/host_device.h"

namespace refrain::bench {
namespace {

using kernels::DType;
using kernels::SlotStep;
using kernels::Traits;

int64_t ChunksOf(int keys) { return (keys + kBenchChunkTokens - 1) / kBenchChunkTokens; }

// 64 Ki values, repeated from shifting offsets: filling must not take longer than the benchmark.
void FillRandom(std::byte* to, size_t bytes, DType dtype) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  const size_t width = Traits(dtype).block_bytes;
  std::vector<std::byte> values((1 << 16) * width);
  for (size_t i = 0; i < values.size(); i += width) {
    const float x = normal(random);
    if (dtype == DType::kF8E4M3) {
      values[i] = std::byte{kernels::F32ToE4m3(x)};
      continue;
    }
    const uint16_t half = dtype == DType::kF16 ? kernels::F32ToF16(x) : kernels::F32ToBf16(x);
    std::memcpy(values.data() + i, dtype == DType::kF32 ? static_cast<const void*>(&x) : &half,
                width);
  }
  for (size_t done = 0, i = 0; done < bytes; ++i) {
    const size_t skip = i * 4096 % values.size() / 3 / 64 * 64;
    const size_t count = std::min(values.size() - skip, bytes - done);
    std::memcpy(to + done, values.data() + skip, count);
    done += count;
  }
}

}  // namespace

RandomKv::RandomKv(const AttentionModel& model, DType dtype, int64_t num_chunks, int layers)
    : num_chunks_(num_chunks) {
  view_.dtype = dtype;
  view_.packing = kernels::HostPackingOf(dtype);
  view_.chunk_tokens = kBenchChunkTokens;
  view_.num_kv_heads = model.num_kv_heads;
  view_.head_dim = model.head_dim;
  view_.head_bytes = size_t{kBenchChunkTokens} * model.head_dim * Traits(dtype).block_bytes;
  view_.v_offset_bytes = model.num_kv_heads * view_.head_bytes;
  view_.layer_bytes = (2 * view_.v_offset_bytes + 4095) / 4096 * 4096;
  view_.chunk_bytes = layers * view_.layer_bytes;
  static kernels::HostDevice device;
  auto memory = device.Allocate(num_chunks * view_.chunk_bytes, /*huge_pages=*/true);
  if (!memory.ok()) {
    std::fprintf(stderr, "%s\n", memory.status().ToString().c_str());
    std::exit(1);
  }
  memory_ = *std::move(memory);
  view_.base = memory_.data();
  FillRandom(memory_.data(), num_chunks * view_.chunk_bytes, dtype);
}

int64_t BatchShape::NumChunks(Sharing sharing) const {
  if (sharing == Sharing::kOwnChunks) return slots * ChunksOf(keys);
  return shared_keys / kBenchChunkTokens + slots * ChunksOf(keys - shared_keys);
}

AttentionWorkload::AttentionWorkload(const AttentionModel& model, const RandomKv& kv,
                                     const BatchShape& shape, Sharing sharing)
    : shape_(shape), kv_elements_(model.KvElements()) {
  const auto shared = sharing == Sharing::kOwnChunks
                          ? 0
                          : static_cast<int32_t>(shape.shared_keys / kBenchChunkTokens);
  const auto own = static_cast<int32_t>(ChunksOf(shape.keys)) - shared;
  if (sharing == Sharing::kRun && shared > 0) {
    for (int32_t i = 0; i < shared; ++i) chunks_.push_back({i, i * kBenchChunkTokens});
    for (int slot = 0; slot < shape.slots; ++slot) {
      run_slots_.push_back({slot, 0, shape.shared_keys});
    }
    runs_.push_back({0, shared, 0, shape.slots});
  }
  const int32_t first_row = shape.keys - shape.rows;
  const int32_t seen_from =
      shape.window == 0 ? 0 : std::max(0, first_row - shape.window + 1);  // as the engine has it
  for (int slot = 0; slot < shape.slots; ++slot) {
    const auto begin = static_cast<int32_t>(chunks_.size());
    const auto add = [&](int32_t chunk) {
      const auto in_run = static_cast<int32_t>(chunks_.size()) - begin;
      chunks_.push_back({chunk, in_run * kBenchChunkTokens});
    };
    if (sharing == Sharing::kSameIds) {
      for (int32_t i = 0; i < shared; ++i) add(i);
    }
    for (int32_t i = 0; i < own; ++i) add(shared + slot * own + i);
    const auto end = static_cast<int32_t>(chunks_.size());
    if (end > begin) {
      const auto entry = static_cast<int32_t>(run_slots_.size());
      const int32_t key_begin = sharing == Sharing::kRun ? shared * kBenchChunkTokens : 0;
      run_slots_.push_back({slot, key_begin, kernels::kOpenEnd});
      runs_.push_back({begin, end, entry, entry + 1});
    }
    steps_.push_back({shape.rows, slot * shape.rows, seen_from, shape.keys});
    for (int32_t row = 0; row < shape.rows; ++row) row_positions_.push_back(first_row + row);
  }
  const int64_t cols = int64_t{model.num_heads} * model.head_dim;
  const int64_t rows = int64_t{shape.slots} * shape.rows;
  q_.resize(rows * cols);
  out_.resize(q_.size());
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& x : q_) x = normal(random);
  args_.num_heads = model.num_heads;
  args_.scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim));
  args_.kv = kv.view();
  args_.plan = {runs_, chunks_, run_slots_};
  args_.steps = steps_;
  args_.q = kernels::F32View(q_.data(), rows, cols);
  args_.out = kernels::F32View(out_.data(), rows, cols);
  if (shape.window == 0) return;
  SetPositions(kv.num_chunks());
  args_.window_tokens = shape.window;
  args_.row_positions = row_positions_.data();
  args_.kv.positions = positions_.data();
}

// A token's position is its key index.
void AttentionWorkload::SetPositions(int64_t num_chunks) {
  positions_.resize(num_chunks * kBenchChunkTokens);
  for (const kernels::AttentionRun& run : runs_) {
    const int32_t key_begin = run_slots_[run.slot_begin].key_begin;
    for (int32_t i = run.chunk_begin; i < run.chunk_end; ++i) {
      const auto first = positions_.begin() + int64_t{chunks_[i].chunk} * kBenchChunkTokens;
      std::iota(first, first + kBenchChunkTokens, key_begin + chunks_[i].token_begin);
    }
  }
}

double AttentionWorkload::Flops() const {
  double pairs = 0;
  for (int row = 0; row < shape_.rows; ++row) pairs += shape_.keys - shape_.rows + row + 1;
  return 4.0 * pairs * shape_.slots * static_cast<double>(args_.q.cols);
}

double AttentionWorkload::KvBytes() const {
  return static_cast<double>(shape_.slots) * shape_.keys * static_cast<double>(kv_elements_) *
         Traits(args_.kv.dtype).block_bytes;
}

void AttentionWorkload::Check(int slot, int row, RowError error) const {
  const int64_t cols = args_.out.cols;
  kernels::ChunkAttentionArgs args = args_;
  std::vector<float> want(out_.size());
  args.out = kernels::F32View(want.data(), args_.out.rows, cols);
  std::vector<SlotStep> steps(steps_.size());
  const int index = slot * shape_.rows + row;
  steps[slot] = {1, index, 0, shape_.keys - shape_.rows + row + 1};
  args.steps = steps;
  kernels::ReferenceAttention(args);
  const size_t first = index * cols;
  CheckAttentionRow(std::span(out_).subspan(first, cols), std::span(want).subspan(first, cols),
                    error, "attention");
}

void CheckAttentionRow(std::span<const float> got, std::span<const float> want, RowError error,
                       const char* what) {
  if (error == RowError::kOfBf16Rows) {
    double distance = 0, length = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      distance += std::pow(double{got[i]} - want[i], 2);
      length += double{want[i]} * want[i];
    }
    if (std::sqrt(distance) <= 0x1p-6 * std::sqrt(length)) return;
    std::fprintf(stderr, "%s is wrong: %g of its length away from what it should be\n", what,
                 std::sqrt(distance / length));
    std::exit(3);
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::fabs(got[i] - want[i]) <= 2e-5f) continue;
    std::fprintf(stderr, "%s is wrong: element %d is %g, should be %g\n", what, static_cast<int>(i),
                 static_cast<double>(got[i]), static_cast<double>(want[i]));
    std::exit(3);
  }
}

}  // namespace refrain::bench
