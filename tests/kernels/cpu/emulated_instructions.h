#ifndef REFRAIN_TESTS_KERNELS_CPU_EMULATED_INSTRUCTIONS_H_
#define REFRAIN_TESTS_KERNELS_CPU_EMULATED_INSTRUCTIONS_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/amx_tiles.h"
#include "tests/kernels/cpu/emulated_tile_log.h"

// vpdpwssd, vdpbf16ps, vcvtne2ps2bf16 and the AMX tile instructions in software, written from
// Intel's manual (rounding to nearest even, denormals as zero, order of sums, shapes of tiles), for
// the templates that kernels are. They test the kernels' logic on machines without these
// instructions; they do not show that real hardware agrees. Need AVX-512 F, BW and DQ.
//
// For files that are compiled wide: no standard library here but its C part, so that no inline
// function of it is compiled wide for the whole test program.

namespace refrain::kernels::cpu {
namespace {

// --- vdpbf16ps ---

// Denormals become zeros of their sign.
inline __m512 Flush(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 tiny = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000));
  const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0x80000000)));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, tiny, sign));
}

inline __m512 Low(__m512i pairs) {
  return Flush(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
}

inline __m512 High(__m512i pairs) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return Flush(_mm512_castsi512_ps(_mm512_and_si512(pairs, high)));
}

// The instructions of AVX-512 BF16.
struct EmulatedBf16 {
  // "VDPBF16PS": the odd elements are added first, then the even ones, each a fused multiply-add
  // rounded to nearest even with denormals as zero on both sides.
  static __m512 Dot(__m512 sums, __m512i x, __m512i w) {
    sums = Flush(_mm512_fmadd_ps(High(x), High(w), Flush(sums)));
    return Flush(_mm512_fmadd_ps(Low(x), Low(w), sums));
  }

  // "VCVTNE2PS2BF16": to nearest even, denormals become zeros, NaN becomes quiet.
  static __m512i Round(__m512 low, __m512 high) {
    const __m256i lower = _mm512_cvtepi32_epi16(RoundedBits(low));
    const __m256i upper = _mm512_cvtepi32_epi16(RoundedBits(high));
    return _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
  }

 private:
  static __m512i RoundedBits(__m512 v) {
    const __m512i bits = _mm512_castps_si512(Flush(v));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
  }
};

// "VPDPWSSD": sums wrap around.
struct EmulatedVnni {
  static __m512i Dot(__m512i sums, __m512i x, __m512i w) {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(x, w));
  }
};

// --- tiles ---

struct TileState {
  AmxTileConfig config;
  unsigned char tiles[8][16][64];
  EmulatedTileLog log;
};
inline thread_local TileState state;

inline void Violation(const char* what) {
  state.log.violation = what;
  ++state.log.violations;
}

struct EmulatedTiles {
  // Of this thread, since the last call.
  static EmulatedTileLog TakeLog() {
    const EmulatedTileLog log = state.log;
    state.log = {};
    return log;
  }

  static void Configure(const AmxTileConfig& config) {
    if (reinterpret_cast<uintptr_t>(&config) % 64 != 0) Violation("configuration not aligned");
    if (config.palette != 1 || config.start_row != 0) Violation("palette or start row");
    for (int i = 0; i < 16; ++i) {
      const bool absent = config.rows[i] == 0 && config.row_bytes[i] == 0;
      const bool present = config.rows[i] >= 1 && config.rows[i] <= 16 &&
                           config.row_bytes[i] >= 1 && config.row_bytes[i] <= 64;
      if (!absent && (!present || i >= 8)) Violation("shape of a tile");
    }
    state.config = config;
    std::memset(state.tiles, 0, sizeof(state.tiles));
    state.log.in_use = true;
    ++state.log.configurations;
  }

  static void Release() {
    state.config = AmxTileConfig{};
    state.log.in_use = false;
  }

  static bool Usable(int tile) {
    if (state.log.in_use && state.config.rows[tile] > 0) return true;
    Violation("use of a tile that is not configured");
    return false;
  }

  template <int kTile>
  static void Zero() {
    if (Usable(kTile)) std::memset(state.tiles[kTile], 0, sizeof(state.tiles[kTile]));
  }

  // Rows and columns outside the configured shape become zeros.
  template <int kTile>
  static void Load(const void* rows, int64_t stride_bytes) {
    Zero<kTile>();
    for (int r = 0; r < state.config.rows[kTile]; ++r) {
      std::memcpy(state.tiles[kTile][r], static_cast<const std::byte*>(rows) + r * stride_bytes,
                  state.config.row_bytes[kTile]);
    }
  }

  template <int kTile>
  static void LoadOnce(const void* rows, int64_t stride_bytes) {
    Load<kTile>(rows, stride_bytes);
  }

  template <int kTile>
  static void Store(void* rows, int64_t stride_bytes) {
    if (!Usable(kTile)) return;
    for (int r = 0; r < state.config.rows[kTile]; ++r) {
      std::memcpy(static_cast<std::byte*>(rows) + r * stride_bytes, state.tiles[kTile][r],
                  state.config.row_bytes[kTile]);
    }
  }

  static bool ShapesFit(int sum, int a, int b) {
    const AmxTileConfig& c = state.config;
    if (!Usable(sum) || !Usable(a) || !Usable(b)) return false;
    if (sum == a || sum == b || a == b) Violation("tile product of one tile with itself");
    if (c.rows[sum] == c.rows[a] && c.row_bytes[a] == 4 * c.rows[b] &&
        c.row_bytes[sum] == c.row_bytes[b] && c.row_bytes[b] % 4 == 0) {
      return true;
    }
    Violation("tile product of shapes that do not fit");
    return false;
  }

  // "TDPBSUD": bytes of the first factor are signed, those of the second unsigned.
  template <int kSum, int kA, int kB>
  static void DotI8U8() {
    if (!ShapesFit(kSum, kA, kB)) return;
    const AmxTileConfig& c = state.config;
    ++state.log.dots;
    for (int m = 0; m < c.rows[kA]; ++m) {
      for (int n = 0; n < c.row_bytes[kB] / 4; ++n) {
        int32_t sum;
        std::memcpy(&sum, &state.tiles[kSum][m][4 * n], sizeof(sum));
        for (int k = 0; k < c.row_bytes[kA]; ++k) {
          sum += static_cast<int8_t>(state.tiles[kA][m][k]) * state.tiles[kB][k / 4][4 * n + k % 4];
        }
        std::memcpy(&state.tiles[kSum][m][4 * n], &sum, sizeof(sum));
      }
    }
  }

  // "TDPBF16PS": even and odd products are summed apart over the whole tile, added to each other,
  // then to the tile of sums.
  template <int kSum, int kA, int kB>
  static void DotBf16() {
    if (!ShapesFit(kSum, kA, kB)) return;
    const AmxTileConfig& c = state.config;
    ++state.log.dots;
    // Columns outside the shape are zeros in all three tiles.
    for (int m = 0; m < c.rows[kA]; ++m) {
      __m512 even = _mm512_setzero_ps();
      __m512 odd = _mm512_setzero_ps();
      for (int k = 0; k < c.rows[kB]; ++k) {
        int32_t pair;
        std::memcpy(&pair, &state.tiles[kA][m][4 * k], sizeof(pair));
        const __m512i x = _mm512_set1_epi32(pair);
        const __m512i w = _mm512_loadu_si512(state.tiles[kB][k]);
        even = Flush(_mm512_fmadd_ps(Low(x), Low(w), even));
        odd = Flush(_mm512_fmadd_ps(High(x), High(w), odd));
      }
      const __m512 sum = Flush(_mm512_loadu_ps(state.tiles[kSum][m]));
      _mm512_storeu_ps(state.tiles[kSum][m],
                       Flush(_mm512_add_ps(sum, Flush(_mm512_add_ps(even, odd)))));
    }
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_TESTS_KERNELS_CPU_EMULATED_INSTRUCTIONS_H_
