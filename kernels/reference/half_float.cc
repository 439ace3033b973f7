#include "kernels/reference/half_float.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace refrain::kernels {

uint16_t F32ToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN
    return sign | 0x7e00 | static_cast<uint16_t>((bits >> 13) & 0x1ff);
  }
  // 65520, half way between 65504 and the next step.
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {  // 2^-14
    // Subnormals are multiples of 2^-24, the last place of what lies from 0.5 to 1; rounding up to
    // 1024 of them gives the smallest normal.
    const float steps = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(steps) - 0x3f000000);
  }
  // What rounding carries beyond the 10 bits of the mantissa makes the exponent greater, as it
  // should; the exponent's bias is 15, not 127.
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded >> 13) - ((127 - 15) << 10));
}

uint16_t F32ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint8_t F32ToE4m3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const double magnitude = std::min(std::fabs(static_cast<double>(value)), 448.0);
  if (magnitude < 0x1p-6) {
    // Subnormals are multiples of 2^-9; rounding up to 8 of them gives the smallest normal.
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 0x1p9));
  }
  int exponent;
  const double fraction = std::frexp(magnitude, &exponent);  // magnitude = fraction * 2^exponent
  const auto steps = static_cast<int>(std::nearbyint(fraction * 16.0));  // [8, 16]
  return sign | static_cast<uint8_t>(((exponent + 5) << 3) + steps);
}

}  // namespace refrain::kernels
