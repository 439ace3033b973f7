#include "tools/bench/machine_peaks.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "tools/bench/cpu_peaks.h"

namespace refrain::bench {
namespace {

using kernels::cpu::Isa;
using kernels::cpu::ThreadPool;

// Short and many: on a machine that does other things too, some go undisturbed.
constexpr int kTries = 300;

// Work per second of the best try, `work` being what one call of `fn` does on all threads.
double BestRate(double work, const std::function<void()>& fn) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    fn();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, work / took.count());
  }
  return best;
}

// Keeps a result from being optimised away.
void Use(uint64_t value) { asm volatile("" : : "r"(value)); }

__attribute__((target("avx2"))) void Read(const std::byte* data, size_t bytes) {
  __m256i sum[4] = {};
  for (size_t i = 0; i < bytes; i += 256) {
    for (int line = 0; line < 4; ++line) {
      const std::byte* p = data + i + 64 * line;
      _mm_prefetch(reinterpret_cast<const char*>(p + 4096), _MM_HINT_T0);
      sum[line] =
          _mm256_xor_si256(sum[line], _mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
      sum[line] =
          _mm256_xor_si256(sum[line], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32)));
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  Use(_mm256_extract_epi64(all, 0));
}

// Twelve chains hide a latency of 4 or 5 cycles on two ports.
constexpr int kChains = 12;
constexpr int64_t kSteps = 50'000;

__attribute__((target("avx512f"))) void FmaWide() {
  __m512 sum[kChains];
  for (auto& s : sum) s = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_fmadd_ps(sum[c], a, b);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_ps(sum[0], sum[c]);
  Use(_mm512_cvtss_f32(sum[0]) > 0);
}

__attribute__((target("avx2,fma"))) void FmaNarrow() {
  __m256 sum[kChains];
  for (auto& s : sum) s = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = _mm256_fmadd_ps(sum[c], a, b);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_ps(sum[0], sum[c]);
  Use(_mm256_cvtss_f32(sum[0]) > 0);
}

__attribute__((target("avx512f,avx512vnni"))) void DotInt8() {
  __m512i sum[kChains];
  for (auto& s : sum) s = _mm512_set1_epi32(1);
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_dpbusd_epi32(sum[c], a, b);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_epi32(sum[0], sum[c]);
  Use(_mm512_cvtsi512_si32(sum[0]));
}

__attribute__((target("avx2"))) void DotInt8Narrow() {
  __m256i sum[kChains];
  for (auto& s : sum) s = _mm256_set1_epi32(1);
  const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c)
      asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum[c]) : "x"(a), "x"(b));
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_epi32(sum[0], sum[c]);
  Use(_mm256_cvtsi256_si32(sum[0]));
}

// Without VNNI the pairs' sums of 16 bits are the most that one instruction gives. The empty asm
// keeps the products, all equal, inside the loop.
__attribute__((target("avx512f,avx512bw"))) void PairsWide() {
  __m512i sum[kChains];
  for (auto& s : sum) s = _mm512_set1_epi16(1);
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      asm("" : "+v"(a));
      sum[c] = _mm512_add_epi16(sum[c], _mm512_maddubs_epi16(a, b));
    }
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_epi16(sum[0], sum[c]);
  Use(_mm512_cvtsi512_si32(sum[0]));
}

__attribute__((target("avx2"))) void PairsNarrow() {
  __m256i sum[kChains];
  for (auto& s : sum) s = _mm256_set1_epi16(1);
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      asm("" : "+x"(a));
      sum[c] = _mm256_add_epi16(sum[c], _mm256_maddubs_epi16(a, b));
    }
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_epi16(sum[0], sum[c]);
  Use(_mm256_cvtsi256_si32(sum[0]));
}

}  // namespace

MachinePeaks MeasurePeaks(int threads) {
  const Isa isa = kernels::cpu::DetectIsa();
  MachinePeaks peaks;
  if (isa < Isa::kAvx2) return peaks;
  ThreadPool pool(threads);
  threads = pool.threads();

  kernels::cpu::CpuDevice device;
  constexpr size_t kCachedBytes = size_t{4} << 20;
  const size_t per_thread = (size_t{256} << 20) / threads / kCachedBytes * kCachedBytes;
  auto memory = device.Allocate(per_thread * threads + kCachedBytes, true);
  if (memory.ok()) {
    std::byte* data = memory->data();
    std::memset(data, 1, memory->bytes());
    // Pieces of a region that is larger than any cache, one after the other.
    constexpr size_t kPieceBytes = size_t{1} << 20;
    size_t piece = 0;
    peaks.read_bytes_per_s = BestRate(static_cast<double>(kPieceBytes) * threads, [&] {
      pool.Run(
          [&](int thread) { Read(data + thread * per_thread + piece * kPieceBytes, kPieceBytes); });
      piece = (piece + 1) % (per_thread / kPieceBytes);
    });
    peaks.cached_read_bytes_per_s = BestRate(static_cast<double>(kCachedBytes) * threads, [&] {
      pool.Run([&](int thread) { Read(data + thread * per_thread, kCachedBytes); });
    });
  }
  const double per_lane = 2.0 * kChains * kSteps * threads;
  const auto rate = [&](int lanes, void (*fn)()) {
    return BestRate(per_lane * lanes, [&] { pool.Run([fn](int) { fn(); }); });
  };
  const bool wide = isa >= Isa::kAvx512;
  peaks.fma_flops_per_s = wide ? rate(16, FmaWide) : rate(8, FmaNarrow);
  peaks.int8_ops_per_s = isa >= Isa::kAvx512Vnni ? rate(64, DotInt8)
                         : wide                  ? rate(64, PairsWide)
                         : isa == Isa::kAvxVnni  ? rate(32, DotInt8Narrow)
                                                 : rate(32, PairsNarrow);
  const auto flops = [&](Isa least, Arithmetic arithmetic) {
    return isa >= least ? FlopsPerSecond(pool, isa, arithmetic, Clock::kWall) : 0;
  };
  peaks.bf16_dot_flops_per_s = flops(Isa::kAvx512Bf16, Arithmetic::kBf16Dots);
  peaks.bf16_tile_flops_per_s = flops(Isa::kAmx, Arithmetic::kBf16Tiles);
  peaks.int8_tile_ops_per_s = flops(Isa::kAmx, Arithmetic::kInt8Tiles);
  return peaks;
}

double ProductPeak(const MachinePeaks& peaks, Isa isa, kernels::DType weight, int64_t rows) {
  constexpr int64_t kMinTileRows = 8;  // of dense_matrix.cc and quantized_tiles_inl.h
  const bool tiles = isa >= Isa::kAmx && rows >= kMinTileRows;
  if (kernels::Traits(weight).quantized) {
    return tiles ? peaks.int8_tile_ops_per_s : peaks.int8_ops_per_s;
  }
  if (weight != kernels::DType::kBF16 || isa < Isa::kAvx512Bf16) return peaks.fma_flops_per_s;
  return tiles ? peaks.bf16_tile_flops_per_s : peaks.bf16_dot_flops_per_s;
}

std::string ProcessorName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace refrain::bench
