#include "tests/kernels/cpu/dense_emulated_kernels.h"

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/dense_avx512_tile.h"
#include "kernels/cpu/tile_dense_inl.h"
#include "kernels/cpu/tile_kernels.h"
#include "kernels/cpu/tile_rows_inl.h"
#include "tests/kernels/cpu/emulated_instructions.h"

// Compiled with wide instructions: no standard library here but its C part, so that no inline
// function of it is compiled wide for the whole test program.

namespace refrain::kernels::cpu {
namespace {

struct EmulatedBf16Dot {
  static constexpr int kUnit = 1;
  static constexpr int64_t kStepBytes = 64;
  using Vector = __m512i;
  static void Load(const std::byte* b, Vector (&w)[kUnit]) { w[0] = _mm512_loadu_si512(b); }
  static __m512 MultiplyAdd(__m512 sums, const int32_t* x, Vector w) {
    return EmulatedBf16::Dot(sums, _mm512_set1_epi32(*x), w);
  }
};

constinit const TileKernels kEmulatedTiles = {.pack_row = PackTileRow<EmulatedBf16>,
                                              .dense = MultiplyDenseByTiles<EmulatedTiles>};

}  // namespace

DenseKernels EmulatedBf16DenseKernels() {
  DenseKernels kernels = Avx512DenseKernels();
  kernels.bf16_dot = RunAvx512Tile<EmulatedBf16Dot>;
  return kernels;
}

DenseKernels EmulatedAmxDenseKernels() {
  DenseKernels kernels = EmulatedBf16DenseKernels();
  kernels.tiles = &kEmulatedTiles;
  return kernels;
}

EmulatedTileLog TakeEmulatedTileLog() { return EmulatedTiles::TakeLog(); }

float EmulatedDotBf16(float sum, uint16_t x0, uint16_t x1, uint16_t w0, uint16_t w1) {
  const __m512i x = _mm512_set1_epi32(static_cast<int>(x0 | static_cast<uint32_t>(x1) << 16));
  const __m512i w = _mm512_set1_epi32(static_cast<int>(w0 | static_cast<uint32_t>(w1) << 16));
  return _mm512_cvtss_f32(EmulatedBf16::Dot(_mm512_set1_ps(sum), x, w));
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
