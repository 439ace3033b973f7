#include "tools/bench/cpu_peaks.h"

#include <immintrin.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx_instructions.h"

namespace refrain::bench {
namespace {

using kernels::cpu::Isa;
using kernels::cpu::ThreadPool;

constexpr size_t kReadBytes = size_t{256} << 20;
constexpr size_t kStreams = 8;
// How far ahead of its use a line is asked for where memory is read as one stream.
constexpr size_t kAheadWords = 4096 / sizeof(uint64_t);
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

__attribute__((target("avx512f,avx512bf16"))) void Bf16DotRounds(int64_t rounds) {
  __m512 sums[16];
  for (__m512& sum : sums) {
    sum = _mm512_set1_ps(1.0f);
    asm("" : "+v"(sum));  // equal sums would be computed once
  }
  const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3e803e80));  // 0.25
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, factor, factor);
  }
  for (__m512& sum : sums) asm volatile("" : : "v"(sum));
}

__attribute__((target("avx512f,avx512vnni"))) void WordRounds(int64_t rounds) {
  __m512i sums[16];
  for (__m512i& sum : sums) {
    sum = _mm512_setzero_si512();
    asm("" : "+v"(sum));
  }
  const __m512i ones = _mm512_set1_epi32(0x00010001);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512i& sum : sums) sum = _mm512_dpwssd_epi32(sum, ones, ones);
  }
  for (__m512i& sum : sums) asm volatile("" : : "v"(sum));
}

using Tiles = kernels::cpu::HardwareTiles;

void ConfigureTiles() {
  kernels::cpu::AmxTileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.row_bytes[tile] = 64;
  }
  Tiles::Configure(config);  // zeros, which take no less time
}

// The four sums of a block of 32 x 32, as the kernels have them.
void Bf16TileRounds(int64_t rounds) {
  ConfigureTiles();
  for (int64_t i = 0; i < rounds; ++i) {
    Tiles::DotBf16<0, 4, 6>();
    Tiles::DotBf16<1, 4, 7>();
    Tiles::DotBf16<2, 5, 6>();
    Tiles::DotBf16<3, 5, 7>();
  }
  Tiles::Release();
}

void Int8TileRounds(int64_t rounds) {
  ConfigureTiles();
  for (int64_t i = 0; i < rounds; ++i) {
    Tiles::DotI8U8<0, 4, 6>();
    Tiles::DotI8U8<1, 4, 7>();
    Tiles::DotI8U8<2, 5, 6>();
    Tiles::DotI8U8<3, 5, 7>();
  }
  Tiles::Release();
}

// Keeps a sum from being optimised away.
void Use(__m128i sum) {
  volatile int64_t sink = _mm_cvtsi128_si64(sum);
  (void)sink;
}

// Two ways to read `count` words, of which the better one is the machine's bandwidth. From several
// places at once, each with a hardware prefetcher of its own, which stops at page borders: a
// quarter more than one behind the other on Intel's cores, and half of it on Zen 5.
void ReadStreams(const uint64_t* words, size_t count) {
  const size_t stream = count / kStreams;
  __m128i sum[4] = {};
  for (size_t i = 0; i < stream; i += 16) {
    for (size_t s = 0; s < kStreams; ++s) {
      const auto* const p = reinterpret_cast<const __m128i*>(words + s * stream + i);
      for (int j = 0; j < 8; ++j) sum[j % 4] = _mm_add_epi64(sum[j % 4], _mm_load_si128(p + j));
    }
  }
  Use(_mm_add_epi64(_mm_add_epi64(sum[0], sum[1]), _mm_add_epi64(sum[2], sum[3])));
}

// One line behind the other, each asked for some lines before.
void ReadAhead(const uint64_t* words, size_t count) {
  __m128i sum[4] = {};
  for (size_t i = 0; i < count; i += 8) {
    const auto* const p = reinterpret_cast<const __m128i*>(words + i);
    _mm_prefetch(reinterpret_cast<const char*>(words + i + kAheadWords), _MM_HINT_T0);
    for (int j = 0; j < 4; ++j) sum[j] = _mm_add_epi64(sum[j], _mm_load_si128(p + j));
  }
  Use(_mm_add_epi64(_mm_add_epi64(sum[0], sum[1]), _mm_add_epi64(sum[2], sum[3])));
}

__attribute__((target("avx512f"))) void ReadAheadWide(const uint64_t* words, size_t count) {
  __m512i sum[4] = {};
  for (size_t i = 0; i < count; i += 32) {
    for (int j = 0; j < 4; ++j) {
      const uint64_t* const p = words + i + 8 * j;
      _mm_prefetch(reinterpret_cast<const char*>(p + kAheadWords), _MM_HINT_T0);
      sum[j] = _mm512_add_epi64(sum[j], _mm512_load_si512(p));
    }
  }
  Use(_mm512_castsi512_si128(
      _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]))));
}

// One try: what every thread runs, and its operations.
struct Rounds {
  void (*run)(int64_t rounds);
  int64_t count;
  double operations_per_round;
};

Rounds RoundsOf(Arithmetic arithmetic, Isa isa) {
  switch (arithmetic) {
    case Arithmetic::kBf16Tiles:
      return {Bf16TileRounds, kMultiplyAddRounds / 16, 4.0 * 16 * 16 * 32 * 2};
    case Arithmetic::kInt8Tiles:
      return {Int8TileRounds, kMultiplyAddRounds / 16, 4.0 * 16 * 16 * 64 * 2};
    case Arithmetic::kBf16Dots:
      return {Bf16DotRounds, kMultiplyAddRounds, 16.0 * 16 * 2 * 2};
    case Arithmetic::kWords:
      return {WordRounds, kMultiplyAddRounds, 16.0 * 16 * 2 * 2};
    case Arithmetic::kF32:
      break;
  }
  if (isa >= Isa::kAvx512) return {Avx512Rounds, kMultiplyAddRounds, 16.0 * 16 * 2};
  if (isa >= Isa::kAvx2) return {Avx2Rounds, kMultiplyAddRounds, 12.0 * 8 * 2};
  return {PortableRounds, kMultiplyAddRounds, 12.0 * 4 * 2};
}

}  // namespace

Arithmetic AttentionArithmetic(Isa isa, kernels::DType kv, bool reproducible) {
  // fp8 is widened to bf16.
  const bool bf16 = kv == kernels::DType::kBF16 || kv == kernels::DType::kF8E4M3;
  if (!bf16 || isa < Isa::kAvx512Bf16) {
    const bool words = isa >= Isa::kAvx512Vnni && kv != kernels::DType::kF32 && !reproducible;
    return words ? Arithmetic::kWords : Arithmetic::kF32;
  }
  return isa >= Isa::kAmx && !reproducible ? Arithmetic::kBf16Tiles : Arithmetic::kBf16Dots;
}

const char* Name(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kF32:
      return "f32 multiply-add";
    case Arithmetic::kWords:
      return "16-bit dot product";
    case Arithmetic::kBf16Dots:
      return "bf16 dot product";
    case Arithmetic::kBf16Tiles:
      return "bf16 tile product";
    case Arithmetic::kInt8Tiles:
      return "int8 tile product";
  }
  return "";
}

double Seconds(Clock clock) {
  timespec now{};
  clock_gettime(clock == Clock::kCpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

PeakProbe::PeakProbe(ThreadPool& pool, Isa isa) : pool_(pool), isa_(isa) {}

void PeakProbe::MapWords() {
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
  if (words_ == nullptr) MapWords();
  if (words_ == nullptr) return 0;
  const size_t part = kReadBytes / sizeof(uint64_t) / pool_.threads() / 1024 * 1024;
  double best = 0;
  for (const auto read : {ReadStreams, isa_ >= Isa::kAvx512 ? ReadAheadWide : ReadAhead}) {
    const double begin = Seconds(clock);
    pool_.Run([&](int thread) { read(words_ + thread * part, part); });
    const double bytes = static_cast<double>(part * pool_.threads() * sizeof(uint64_t));
    best = std::max(best, bytes / (Seconds(clock) - begin));
  }
  return best;
}

double PeakProbe::MultiplyAdd(Arithmetic arithmetic, Clock clock) {
  const Rounds rounds = RoundsOf(arithmetic, isa_);
  const double begin = Seconds(clock);
  pool_.Run([&](int) { rounds.run(rounds.count); });
  return rounds.operations_per_round * static_cast<double>(rounds.count) * pool_.threads() /
         (Seconds(clock) - begin);
}

double ReadBytesPerSecond(ThreadPool& pool, Clock clock) {
  PeakProbe probe(pool, kernels::cpu::DetectIsa());
  double best = 0;
  for (int i = 0; i < 9; ++i) best = std::max(best, probe.Read(clock));
  return best;
}

double FlopsPerSecond(ThreadPool& pool, Isa isa, Arithmetic arithmetic, Clock clock) {
  PeakProbe probe(pool, isa);
  double best = 0;
  for (int i = 0; i < 50; ++i) best = std::max(best, probe.MultiplyAdd(arithmetic, clock));
  return best;
}

}  // namespace refrain::bench
