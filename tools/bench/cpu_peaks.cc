#include "tools/bench/cpu_peaks.h"

#include <immintrin.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace refrain::bench {
namespace {

using kernels::cpu::Isa;
using kernels::cpu::ThreadPool;

constexpr size_t kReadBytes = size_t{256} << 20;
constexpr int64_t kMultiplyAddRounds = 200'000;

template <typename Fn>
double BestSeconds(Clock clock, int rounds, const Fn& fn) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const double begin = Seconds(clock);
    fn();
    best = std::min(best, Seconds(clock) - begin);
  }
  return best;
}

// Sixteen accumulators (twelve where there are sixteen registers) hide the latency of two units.
__attribute__((target("avx512f"))) void Avx512Rounds(int64_t rounds) {
  __m512 sums[16];
  for (__m512& sum : sums) {
    sum = _mm512_set1_ps(1.0f);
    asm("" : "+v"(sum));  // equal sums would be computed once
  }
  const __m512 factor = _mm512_set1_ps(0.5f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, factor);
  }
  for (__m512& sum : sums) asm volatile("" : : "v"(sum));
}

__attribute__((target("avx2,fma"))) void Avx2Rounds(int64_t rounds) {
  __m256 sums[12];
  for (__m256& sum : sums) {
    sum = _mm256_set1_ps(1.0f);
    asm("" : "+x"(sum));  // equal sums would be computed once
  }
  const __m256 factor = _mm256_set1_ps(0.5f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, factor);
  }
  for (__m256& sum : sums) asm volatile("" : : "x"(sum));
}

void PortableRounds(int64_t rounds) {
  __m128 sums[12];
  for (__m128& sum : sums) {
    sum = _mm_set1_ps(1.0f);
    asm("" : "+x"(sum));  // equal sums would be computed once
  }
  const __m128 factor = _mm_set1_ps(0.5f);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m128& sum : sums) sum = _mm_add_ps(_mm_mul_ps(sum, factor), factor);
  }
  for (__m128& sum : sums) asm volatile("" : : "x"(sum));
}

}  // namespace

double Seconds(Clock clock) {
  timespec now{};
  clock_gettime(clock == Clock::kCpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double ReadBytesPerSecond(ThreadPool& pool, Clock clock) {
  void* const memory =
      mmap(nullptr, kReadBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, kReadBytes, MADV_HUGEPAGE);
  auto* const words = static_cast<uint64_t*>(memory);
  const size_t count = kReadBytes / sizeof(uint64_t);
  std::fill(words, words + count, 1);
  const size_t part = count / pool.threads() / 64 * 64;
  const double seconds = BestSeconds(clock, 9, [&] {
    pool.Run([&](int thread) {
      const uint64_t* p = words + thread * part;
      __m128i sum[4] = {};
      for (size_t i = 0; i < part; i += 8) {
        for (int j = 0; j < 4; ++j) {
          sum[j] =
              _mm_add_epi64(sum[j], _mm_load_si128(reinterpret_cast<const __m128i*>(p + i) + j));
        }
      }
      volatile int64_t sink = _mm_cvtsi128_si64(
          _mm_add_epi64(_mm_add_epi64(sum[0], sum[1]), _mm_add_epi64(sum[2], sum[3])));
      (void)sink;
    });
  });
  munmap(memory, kReadBytes);
  return static_cast<double>(part * pool.threads() * sizeof(uint64_t)) / seconds;
}

double F32FlopsPerSecond(ThreadPool& pool, Isa isa, Clock clock) {
  const bool avx512 = isa >= Isa::kAvx512;
  const bool avx2 = isa >= Isa::kAvx2;
  const double per_round = avx512 ? 16 * 16 * 2 : avx2 ? 12 * 8 * 2 : 12 * 4 * 2;
  const double seconds = BestSeconds(clock, 50, [&] {
    pool.Run([&](int) {
      (avx512 ? Avx512Rounds : avx2 ? Avx2Rounds : PortableRounds)(kMultiplyAddRounds);
    });
  });
  return per_round * kMultiplyAddRounds * pool.threads() / seconds;
}

}  // namespace refrain::bench
