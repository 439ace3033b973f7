#include "tools/bench/naive_attention.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/reference/dequantize.h"

namespace refrain::bench {
namespace {

using kernels::DType;

float Element(DType dtype, const std::byte* p, int64_t i) {
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, p + i * 4, 4);
    return x;
  }
  if (dtype == DType::kF8E4M3) return kernels::E4m3ToF32(static_cast<uint8_t>(p[i]));
  uint16_t half;
  std::memcpy(&half, p + i * 2, 2);
  return dtype == DType::kF16 ? kernels::F16ToF32(half) : kernels::Bf16ToF32(half);
}

struct PlainLoops {
  static float Dot(DType dtype, const std::byte* k, const float* q, int d) {
    float sum = 0;
    for (int i = 0; i < d; ++i) sum += q[i] * Element(dtype, k, i);
    return sum;
  }
  static void AddScaled(DType dtype, const std::byte* v, float weight, float* out, int d) {
    for (int i = 0; i < d; ++i) out[i] += weight * Element(dtype, v, i);
  }
};

struct Avx512Loops {
  __attribute__((target("avx512f"))) static __m512 Load(DType dtype, const std::byte* p, int i) {
    if (dtype == DType::kF32) return _mm512_loadu_ps(reinterpret_cast<const float*>(p) + i);
    const __m256i halves =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + static_cast<size_t>(i) * 2));
    if (dtype == DType::kF16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  __attribute__((target("avx512f"))) static float Dot(DType dtype, const std::byte* k,
                                                      const float* q, int d) {
    __m512 sum = _mm512_setzero_ps();
    for (int i = 0; i < d; i += 16) {
      sum = _mm512_fmadd_ps(_mm512_loadu_ps(q + i), Load(dtype, k, i), sum);
    }
    return _mm512_reduce_add_ps(sum);
  }
  __attribute__((target("avx512f"))) static void AddScaled(DType dtype, const std::byte* v,
                                                           float weight, float* out, int d) {
    const __m512 factor = _mm512_set1_ps(weight);
    for (int i = 0; i < d; i += 16) {
      _mm512_storeu_ps(out + i,
                       _mm512_fmadd_ps(factor, Load(dtype, v, i), _mm512_loadu_ps(out + i)));
    }
  }
};

template <class Loops>
void OneHead(const NaiveBatch& b, int slot, int head, float* scores) {
  const int d = b.head_dim;
  const int64_t width = kernels::Traits(b.kv_dtype).block_bytes;
  const int kv_head = head / (b.num_heads / b.num_kv_heads);
  const int64_t first = (int64_t{slot} * b.num_kv_heads + kv_head) * b.keys * d * width;
  const int64_t row = (int64_t{slot} * b.num_heads + head) * d;
  float max = -INFINITY;
  for (int j = 0; j < b.keys; ++j) {
    scores[j] = b.scale * Loops::Dot(b.kv_dtype, b.k + first + j * d * width, b.q + row, d);
    max = std::max(max, scores[j]);
  }
  float sum = 0;
  for (int j = 0; j < b.keys; ++j) sum += scores[j] = std::exp(scores[j] - max);
  for (int j = 0; j < b.keys; ++j) scores[j] /= sum;
  std::fill_n(b.out + row, d, 0.0f);
  for (int j = 0; j < b.keys; ++j) {
    Loops::AddScaled(b.kv_dtype, b.v + first + j * d * width, scores[j], b.out + row, d);
  }
}

}  // namespace

void NaiveAttention::Run(const NaiveBatch& batch) {
  scores_.resize(pool_.threads());
  for (auto& scores : scores_) scores.resize(batch.keys);
  std::atomic<int> next{0};
  const int tasks = batch.slots * batch.num_heads;
  const bool vectors = isa_ >= kernels::cpu::Isa::kAvx512 && batch.head_dim % 16 == 0 &&
                       batch.kv_dtype != DType::kF8E4M3;
  pool_.Run([&](int thread) {
    for (int i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) {
      const auto one = vectors ? OneHead<Avx512Loops> : OneHead<PlainLoops>;
      one(batch, i / batch.num_heads, i % batch.num_heads, scores_[thread].data());
    }
  });
}

std::vector<float> ExactNaiveRow(const NaiveBatch& b, int slot) {
  const int d = b.head_dim;
  const int64_t width = kernels::Traits(b.kv_dtype).block_bytes;
  std::vector<float> out(static_cast<size_t>(b.num_heads) * d);
  std::vector<double> weights(b.keys);
  for (int head = 0; head < b.num_heads; ++head) {
    const int kv_head = head / (b.num_heads / b.num_kv_heads);
    const int64_t first = (int64_t{slot} * b.num_kv_heads + kv_head) * b.keys * d;
    const float* const q = b.q + (int64_t{slot} * b.num_heads + head) * d;
    double max = -INFINITY, sum = 0;
    for (int j = 0; j < b.keys; ++j) {
      double dot = 0;
      for (int i = 0; i < d; ++i) {
        dot += double{q[i]} * Element(b.kv_dtype, b.k + (first + int64_t{j} * d) * width, i);
      }
      weights[j] = dot * b.scale;
      max = std::max(max, weights[j]);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - max);
    for (int i = 0; i < d; ++i) {
      double total = 0;
      for (int j = 0; j < b.keys; ++j) {
        total += weights[j] * Element(b.kv_dtype, b.v + (first + int64_t{j} * d) * width, i);
      }
      out[static_cast<size_t>(head) * d + i] = static_cast<float>(total / sum);
    }
  }
  return out;
}

}  // namespace refrain::bench
