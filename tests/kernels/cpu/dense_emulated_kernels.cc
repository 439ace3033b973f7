#include "tests/kernels/cpu/dense_emulated_kernels.h"

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/dense_amx_tile.h"
#include "kernels/cpu/dense_avx512_tile.h"

// Compiled with wide instructions: no standard library here but its C part, so that no inline
// function of it is compiled wide for the whole test program.

namespace refrain::kernels::cpu {
namespace {

// --- vdpbf16ps ---

// Denormals become zeros of their sign.
__m512 Flush(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 tiny = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000));
  const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0x80000000)));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, tiny, sign));
}

__m512 Low(__m512i pairs) { return Flush(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))); }

__m512 High(__m512i pairs) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return Flush(_mm512_castsi512_ps(_mm512_and_si512(pairs, high)));
}

// "VDPBF16PS": the odd elements are added first, then the even ones, each a fused multiply-add
// rounded to nearest even with denormals as zero on both sides.
__m512 Dot(__m512 sums, __m512i x, __m512i w) {
  sums = Flush(_mm512_fmadd_ps(High(x), High(w), Flush(sums)));
  return Flush(_mm512_fmadd_ps(Low(x), Low(w), sums));
}

struct EmulatedBf16Dot {
  static constexpr int kUnit = 1;
  static constexpr int64_t kStepBytes = 64;
  using Vector = __m512i;
  static void Load(const std::byte* b, Vector (&w)[kUnit]) { w[0] = _mm512_loadu_si512(b); }
  static __m512 MultiplyAdd(__m512 sums, const int32_t* x, Vector w) {
    return Dot(sums, _mm512_set1_epi32(*x), w);
  }
};

// --- tiles ---

float FlushScalar(float v) { return v > -0x1p-126f && v < 0x1p-126f ? 0.0f * v : v; }

float WidenScalar(uint16_t bf16) {
  const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return FlushScalar(value);
}

struct TileState {
  AmxTileConfig config;
  unsigned char tiles[8][16][64];
  EmulatedTileLog log;
};
thread_local TileState state;

void Violation(const char* what) {
  state.log.violation = what;
  ++state.log.violations;
}

struct EmulatedTiles {
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
  static void Store(void* rows, int64_t stride_bytes) {
    if (!Usable(kTile)) return;
    for (int r = 0; r < state.config.rows[kTile]; ++r) {
      std::memcpy(static_cast<std::byte*>(rows) + r * stride_bytes, state.tiles[kTile][r],
                  state.config.row_bytes[kTile]);
    }
  }

  // "TDPBF16PS": even and odd products are summed apart over the whole tile, added to each other,
  // then to the tile of sums.
  template <int kSum, int kA, int kB>
  static void DotBf16() {
    if (!Usable(kSum) || !Usable(kA) || !Usable(kB)) return;
    const AmxTileConfig& c = state.config;
    if (kSum == kA || kSum == kB || kA == kB) Violation("tile product of one tile with itself");
    if (c.rows[kSum] != c.rows[kA] || c.row_bytes[kA] != 4 * c.rows[kB] ||
        c.row_bytes[kSum] != c.row_bytes[kB] || c.row_bytes[kB] % 4 != 0) {
      Violation("tile product of shapes that do not fit");
      return;
    }
    ++state.log.dots;
    for (int m = 0; m < c.rows[kA]; ++m) {
      for (int n = 0; n < c.row_bytes[kB] / 4; ++n) {
        float even = 0.0f;
        float odd = 0.0f;
        for (int k = 0; k < c.rows[kB]; ++k) {
          uint16_t x[2], w[2];
          std::memcpy(x, &state.tiles[kA][m][4 * k], sizeof(x));
          std::memcpy(w, &state.tiles[kB][k][4 * n], sizeof(w));
          even = FlushScalar(__builtin_fmaf(WidenScalar(x[0]), WidenScalar(w[0]), even));
          odd = FlushScalar(__builtin_fmaf(WidenScalar(x[1]), WidenScalar(w[1]), odd));
        }
        float sum;
        std::memcpy(&sum, &state.tiles[kSum][m][4 * n], sizeof(sum));
        sum = FlushScalar(FlushScalar(sum) + FlushScalar(even + odd));
        std::memcpy(&state.tiles[kSum][m][4 * n], &sum, sizeof(sum));
      }
    }
  }
};

void MultiplyEmulatedAmx(const DenseAmxProduct& product) {
  AmxProduct<EmulatedTiles>(product).Run();
}

}  // namespace

DenseKernels EmulatedBf16DenseKernels() {
  DenseKernels kernels = Avx512DenseKernels();
  kernels.bf16_dot = RunAvx512Tile<EmulatedBf16Dot>;
  return kernels;
}

DenseKernels EmulatedAmxDenseKernels() {
  DenseKernels kernels = EmulatedBf16DenseKernels();
  kernels.amx = MultiplyEmulatedAmx;
  return kernels;
}

EmulatedTileLog TakeEmulatedTileLog() {
  const EmulatedTileLog log = state.log;
  state.log = {};
  return log;
}

float EmulatedDotBf16(float sum, uint16_t x0, uint16_t x1, uint16_t w0, uint16_t w1) {
  const __m512i x = _mm512_set1_epi32(static_cast<int>(x0 | static_cast<uint32_t>(x1) << 16));
  const __m512i w = _mm512_set1_epi32(static_cast<int>(w0 | static_cast<uint32_t>(w1) << 16));
  return _mm512_cvtss_f32(Dot(_mm512_set1_ps(sum), x, w));
}

void EmulatedTileDot(const uint8_t rows[3], const uint16_t row_bytes[3], const void* a,
                     const void* b, float* sums) {
  AmxTileConfig config;
  std::memcpy(config.rows, rows, 3 * sizeof(rows[0]));
  std::memcpy(config.row_bytes, row_bytes, 3 * sizeof(row_bytes[0]));
  EmulatedTiles::Configure(config);
  EmulatedTiles::Load<0>(sums, row_bytes[0]);
  EmulatedTiles::Load<1>(a, row_bytes[1]);
  EmulatedTiles::Load<2>(b, row_bytes[2]);
  EmulatedTiles::DotBf16<0, 1, 2>();
  EmulatedTiles::Store<0>(sums, row_bytes[0]);
  EmulatedTiles::Release();
}

}  // namespace refrain::kernels::cpu
