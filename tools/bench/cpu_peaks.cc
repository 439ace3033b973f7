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
// A core reads a quarter more from several places at once: each has a hardware prefetcher of its
// own, which stops at page borders.
constexpr size_t kStreams = 8;
constexpr int64_t kMultiplyAddRounds = 200'000;

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

PeakProbe::PeakProbe(ThreadPool& pool, Isa isa) : pool_(pool), isa_(isa) {
  void* const memory =
      mmap(nullptr, kReadBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  madvise(memory, kReadBytes, MADV_HUGEPAGE);
  words_ = static_cast<uint64_t*>(memory);
  std::fill(words_, words_ + kReadBytes / sizeof(uint64_t), 1);
}

PeakProbe::~PeakProbe() {
  if (words_ != nullptr) munmap(words_, kReadBytes);
}

double PeakProbe::Read(Clock clock) {
  if (words_ == nullptr) return 0;
  const size_t part = kReadBytes / sizeof(uint64_t) / pool_.threads() / 1024 * 1024;
  const double begin = Seconds(clock);
  pool_.Run([&](int thread) {
    const uint64_t* const first = words_ + thread * part;
    const size_t stream = part / kStreams;
    __m128i sum[4] = {};
    for (size_t i = 0; i < stream; i += 16) {
      for (size_t s = 0; s < kStreams; ++s) {
        const auto* const p = reinterpret_cast<const __m128i*>(first + s * stream + i);
        for (int j = 0; j < 8; ++j) sum[j % 4] = _mm_add_epi64(sum[j % 4], _mm_load_si128(p + j));
      }
    }
    volatile int64_t sink = _mm_cvtsi128_si64(
        _mm_add_epi64(_mm_add_epi64(sum[0], sum[1]), _mm_add_epi64(sum[2], sum[3])));
    (void)sink;
  });
  return static_cast<double>(part * pool_.threads() * sizeof(uint64_t)) / (Seconds(clock) - begin);
}

double PeakProbe::MultiplyAdd(Clock clock) {
  const bool avx512 = isa_ >= Isa::kAvx512;
  const bool avx2 = isa_ >= Isa::kAvx2;
  const double per_round = avx512 ? 16 * 16 * 2 : avx2 ? 12 * 8 * 2 : 12 * 4 * 2;
  const double begin = Seconds(clock);
  pool_.Run([&](int) {
    (avx512 ? Avx512Rounds : avx2 ? Avx2Rounds : PortableRounds)(kMultiplyAddRounds);
  });
  return per_round * kMultiplyAddRounds * pool_.threads() / (Seconds(clock) - begin);
}

double ReadBytesPerSecond(ThreadPool& pool, Clock clock) {
  PeakProbe probe(pool, Isa::kPortable);
  double best = 0;
  for (int i = 0; i < 9; ++i) best = std::max(best, probe.Read(clock));
  return best;
}

double F32FlopsPerSecond(ThreadPool& pool, Isa isa, Clock clock) {
  PeakProbe probe(pool, isa);
  double best = 0;
  for (int i = 0; i < 50; ++i) best = std::max(best, probe.MultiplyAdd(clock));
  return best;
}

}  // namespace refrain::bench
