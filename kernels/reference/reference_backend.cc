#include "kernels/reference/reference_backend.h"

#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/reference/attention.h"
#include "kernels/reference/dequantize.h"
#include "kernels/reference/half_float.h"
#include "kernels/reference/kv_element.h"
#include "kernels/weight_slices.h"

namespace refrain::kernels {
namespace {

class ReferenceWeight final : public LinearWeight {
 public:
  ReferenceWeight(int64_t n, int64_t k, bool round_to_bf16)
      : n_(n), k_(k), round_to_bf16_(round_to_bf16), rows_(n * k) {}

  int64_t n() const override { return n_; }
  int64_t k() const override { return k_; }
  size_t resident_bytes() const override { return rows_.size() * sizeof(float); }

  bool round_to_bf16() const { return round_to_bf16_; }
  const float* Row(int64_t row) const { return rows_.data() + row * k_; }
  float* MutableRow(int64_t row) { return rows_.data() + row * k_; }

 private:
  int64_t n_, k_;
  bool round_to_bf16_;
  std::vector<float> rows_;  // [n, k]
};

const ReferenceWeight& Weight(const LinearWeight* weight) {
  return static_cast<const ReferenceWeight&>(*weight);
}

float RoundToBf16(float x) { return Bf16ToF32(F32ToBf16(x)); }

double Silu(double x) { return x / (1.0 + std::exp(-x)); }

// x . w[row] with the weight's arithmetic.
double Dot(const ReferenceWeight& weight, int64_t row, const float* x) {
  const float* const w = weight.Row(row);
  double sum = 0;
  for (int64_t i = 0; i < weight.k(); ++i) {
    const float activation = weight.round_to_bf16() ? RoundToBf16(x[i]) : x[i];
    sum += static_cast<double>(w[i]) * activation;
  }
  return sum;
}

// Rotates the pairs (i, i + rope_dim / 2) of one head by `position`.
void Rotate(const RopeTable& table, int32_t position, float* head) {
  assert(position >= 0 && position < table.max_positions);
  const int half = table.rope_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double cos = table.cos[static_cast<int64_t>(position) * half + i];
    const double sin = table.sin[static_cast<int64_t>(position) * half + i];
    const double a = head[i], b = head[i + half];
    head[i] = static_cast<float>(a * cos - b * sin);
    head[i + half] = static_cast<float>(b * cos + a * sin);
  }
}

}  // namespace

ReferenceBackend::ReferenceBackend()
    : info_{.name = "reference", .isa = "", .threads = 1, .preferred_kv = DType::kF32} {
  info_.packed_as = [](DType, ComputeDType) { return DType::kF32; };
}

absl::StatusOr<std::unique_ptr<LinearWeight>> ReferenceBackend::PackLinear(
    std::span<const WeightSlice> slices, const PackOptions& options) {
  if (absl::Status status = CheckSlices(slices); !status.ok()) return status;
  int64_t rows = 0;
  for (const WeightSlice& slice : slices) rows += slice.rows;
  const int64_t cols = slices.front().cols;
  auto weight =
      std::make_unique<ReferenceWeight>(rows, cols, options.compute == ComputeDType::kBF16);
  int64_t row = 0;
  for (const WeightSlice& slice : slices) {
    const size_t row_bytes = *RowBytes(slice.dtype, cols);
    for (int64_t i = 0; i < slice.rows; ++i, ++row) {
      const int64_t source = slice.row_order.empty() ? i : slice.row_order[i];
      float* const to = weight->MutableRow(row);
      DequantizeRow(slice.dtype, slice.data + source * row_bytes, cols, to);
      if (!weight->round_to_bf16()) continue;
      for (int64_t j = 0; j < cols; ++j) to[j] = RoundToBf16(to[j]);
    }
  }
  return weight;
}

void ReferenceBackend::Embed(const EmbedArgs& args) {
  const ReferenceWeight& table = Weight(args.table);
  assert(args.out.rows == std::ssize(args.ids) && args.out.cols == table.k());
  for (int64_t r = 0; r < args.out.rows; ++r) {
    const int32_t id = TokenOf(args.ids[r], args.sampled);
    if (id < 0) continue;
    assert(id < table.n());
    std::memcpy(args.out.F32Row(r), table.Row(id), table.k() * sizeof(float));
  }
}

void ReferenceBackend::RmsNorm(const RmsNormArgs& args) {
  assert(args.out.cols == args.x.cols && args.x.cols % args.groups == 0);
  const int64_t n = args.x.cols / args.groups;
  assert(args.row_indexes.empty() ? args.out.rows == args.x.rows
                                  : args.out.rows == std::ssize(args.row_indexes));
  for (int64_t r = 0; r < args.out.rows; ++r) {
    const float* const x = args.x.F32Row(args.row_indexes.empty() ? r : args.row_indexes[r]);
    float* const out = args.out.F32Row(r);
    for (int64_t begin = 0; begin < args.x.cols; begin += n) {
      double squares = 0;
      for (int64_t i = begin; i < begin + n; ++i) squares += static_cast<double>(x[i]) * x[i];
      const double scale = 1.0 / std::sqrt(squares / n + args.eps);
      for (int64_t i = begin; i < begin + n; ++i) {
        out[i] = static_cast<float>(x[i] * scale * args.weight[i - begin]);
      }
    }
  }
}

void ReferenceBackend::Linear(const LinearArgs& args) {
  const ReferenceWeight& weight = Weight(args.weight);
  assert(args.x.cols == weight.k() && args.out.cols == weight.n() && args.x.rows == args.out.rows);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    const float* const x = args.x.F32Row(r);
    float* const out = args.out.F32Row(r);
    for (int64_t i = 0; i < weight.n(); ++i) {
      const double sum = Dot(weight, i, x);
      out[i] = static_cast<float>(args.accumulate ? out[i] + sum : sum);
    }
  }
}

void ReferenceBackend::GateUp(const GateUpArgs& args) {
  const ReferenceWeight& gate = Weight(args.gate);
  const ReferenceWeight& up = Weight(args.up);
  assert(args.x.cols == gate.k() && args.x.cols == up.k() && gate.n() == up.n());
  assert(args.out.cols == gate.n() && args.x.rows == args.out.rows);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    const float* const x = args.x.F32Row(r);
    for (int64_t i = 0; i < gate.n(); ++i) {
      args.out.F32Row(r)[i] = static_cast<float>(Silu(Dot(gate, i, x)) * Dot(up, i, x));
    }
  }
}

void ReferenceBackend::RopeAppend(const RopeAppendArgs& args) {
  const int d = args.kv.head_dim;
  const int kv_heads = args.kv.num_kv_heads;
  assert(args.qkv.cols == static_cast<int64_t>(args.num_heads + 2 * kv_heads) * d);
  assert(std::ssize(args.positions) == args.qkv.rows);
  assert(std::ssize(args.destinations) == args.qkv.rows);
  assert(args.table.rope_dim % 2 == 0 && args.table.rope_dim <= d);
  for (int64_t r = 0; r < args.qkv.rows; ++r) {
    float* const row = args.qkv.F32Row(r);
    for (int h = 0; h < args.num_heads + kv_heads; ++h) {
      Rotate(args.table, args.positions[r], row + h * d);
    }
    const float* const k = row + args.num_heads * d;
    const float* const v = k + kv_heads * d;
    const KvSlotRef to = args.destinations[r];
    if (to.chunk < 0) continue;
    for (int h = 0; h < kv_heads; ++h) {
      bool finite = true;
      for (int i = 0; i < d; ++i) {
        const KvElement at = {to.chunk, args.layer, h, to.offset, i};
        StoreKey(args.kv, at, k[h * d + i]);
        StoreValue(args.kv, at, v[h * d + i]);
        finite =
            finite && std::isfinite(LoadKey(args.kv, at)) && std::isfinite(LoadValue(args.kv, at));
      }
      for (int i = 0; i < d && !finite; ++i) {
        const KvElement at = {to.chunk, args.layer, h, to.offset, i};
        StoreKey(args.kv, at, std::numeric_limits<float>::quiet_NaN());
        StoreValue(args.kv, at, 0.0f);
      }
    }
  }
}

void ReferenceBackend::ChunkAttention(const ChunkAttentionArgs& args) { ReferenceAttention(args); }

void ReferenceBackend::SwiGlu(const SwiGluArgs& args) {
  assert(args.gate.rows == args.up.rows && args.gate.rows == args.out.rows);
  assert(args.gate.cols == args.up.cols && args.gate.cols == args.out.cols);
  for (int64_t r = 0; r < args.out.rows; ++r) {
    for (int64_t i = 0; i < args.out.cols; ++i) {
      args.out.F32Row(r)[i] =
          static_cast<float>(Silu(args.gate.F32Row(r)[i]) * args.up.F32Row(r)[i]);
    }
  }
}

void ReferenceBackend::Add(const AddArgs& args) {
  assert(args.x.rows == args.y.rows && args.x.cols == args.y.cols);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t i = 0; i < args.x.cols; ++i) args.x.F32Row(r)[i] += args.y.F32Row(r)[i];
  }
}

}  // namespace refrain::kernels
