#include <bit>
#include <cstring>

#include "kernels/cpu/dense_kernels.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int kLanes = 16;

// The loops over lanes are what the compiler turns into vectors; the order over k is the program's.
template <int kRows>
void Tile(const DenseTile& tile) {
  float sums[kRows][kLanes];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kLanes; ++i) {
      sums[r][i] = tile.start == nullptr ? 0.0f : tile.start[r * tile.start_stride + i];
    }
  }
  const auto* a = static_cast<const float*>(tile.a);
  const auto* b = reinterpret_cast<const float*>(tile.b);
  for (int64_t step = 0; step < tile.steps; ++step, b += kLanes) {
    for (int r = 0; r < kRows; ++r) {
      const float x = a[r * tile.a_stride + step];
      for (int i = 0; i < kLanes; ++i) sums[r][i] += x * b[i];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* out = tile.out + r * tile.out_stride;
    for (int i = 0; i < tile.last_columns; ++i) {
      out[i] = tile.add_to_out ? out[i] + sums[r][i] : sums[r][i];
    }
  }
}

void RunTile(const DenseTile& tile) {
  if (tile.rows == 1) return Tile<1>(tile);
  Tile<2>(tile);
}

float WidenF16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) {  // infinity, NaN (made quiet, as vcvtph2ps does)
    const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 | quiet);
  }
  // Subnormals are whole multiples of 2^-24; normals move to the exponent of f32.
  const float value = magnitude < 0x400 ? static_cast<float>(magnitude) * 0x1p-24f
                                        : std::bit_cast<float>((magnitude << 13) + 0x38000000);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

void WidenF16Panel(const std::byte* panel, int64_t steps, float* out) {
  for (int64_t i = 0; i < steps * kLanes; ++i) {
    uint16_t half;
    std::memcpy(&half, panel + i * sizeof(half), sizeof(half));
    out[i] = WidenF16(half);
  }
}

void WidenBf16Panel(const std::byte* panel, int64_t steps, float* out) {
  for (int64_t step = 0; step < steps; ++step) {
    for (int i = 0; i < kLanes; ++i) {
      uint32_t pair;
      std::memcpy(&pair, panel + ((step / 2) * kLanes + i) * sizeof(pair), sizeof(pair));
      const uint32_t bits = step % 2 == 0 ? pair << 16 : pair & 0xffff0000;
      out[step * kLanes + i] = std::bit_cast<float>(bits);
    }
  }
}

int Panels(int) { return 1; }

}  // namespace

DenseKernels PortableDenseKernels() {
  return {.max_rows = 2,
          .panels = Panels,
          .f32 = RunTile,
          .widen_f16 = WidenF16Panel,
          .widen_bf16 = WidenBf16Panel};
}

}  // namespace refrain::kernels::cpu
