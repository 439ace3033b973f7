#ifndef REFRAIN_TOOLS_BENCH_NAIVE_ATTENTION_H_
#define REFRAIN_TOOLS_BENCH_NAIVE_ATTENTION_H_

#include <cstddef>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/dtype.h"

namespace refrain::bench {

// Decode attention as the formula softmax(q K^T / sqrt(d)) V is written: K and V of each sequence
// in one piece each, all scores of a head, their softmax, the weighted sum of values. One
// (sequence, head) per task on all threads; f32 arithmetic, vectors where the level has AVX-512,
// plain loops below and over fp8. The baseline that knows of no pages and no sharing.
struct NaiveBatch {
  int slots = 0, keys = 0;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  float scale = 0;
  kernels::DType kv_dtype = kernels::DType::kF16;
  const std::byte* k = nullptr;  // [slots, num_kv_heads, keys, head_dim]
  const std::byte* v = nullptr;  // [slots, num_kv_heads, keys, head_dim]
  const float* q = nullptr;      // [slots, num_heads * head_dim]
  float* out = nullptr;          // [slots, num_heads * head_dim]
};

class NaiveAttention {
 public:
  NaiveAttention(kernels::cpu::ThreadPool& pool, kernels::cpu::Isa isa) : pool_(pool), isa_(isa) {}

  void Run(const NaiveBatch& batch);

 private:
  kernels::cpu::ThreadPool& pool_;
  kernels::cpu::Isa isa_;
  std::vector<std::vector<float>> scores_;  // [threads, keys]
};

// One row of `batch` in double arithmetic: [num_heads * head_dim].
std::vector<float> ExactNaiveRow(const NaiveBatch& batch, int slot);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_NAIVE_ATTENTION_H_
