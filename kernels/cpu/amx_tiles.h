#ifndef REFRAIN_KERNELS_CPU_AMX_TILES_H_
#define REFRAIN_KERNELS_CPU_AMX_TILES_H_

#include <cstdint>

// What kernels over AMX tiles are templates over, so that tests run them on an emulation;
// amx_instructions.h has the hardware's. Declared in an unnamed namespace by who implements it.
//   struct Tiles {
//     static void Configure(const AmxTileConfig& config);
//     static void Release();
//     template <int kTile> static void Zero();
//     template <int kTile> static void Load(const void* rows, int64_t stride_bytes);
//     template <int kTile> static void LoadOnce(const void* rows, int64_t stride_bytes);
//     template <int kTile> static void Store(void* rows, int64_t stride_bytes);
//     template <int kSum, int kA, int kB> static void DotBf16();
//     template <int kSum, int kA, int kB> static void DotI8U8();
//   };
//
// LoadOnce (TILELOADDT1) is Load of what other data should not give way to in the first-level
// cache.
//
// DotI8U8 (TDPBSUD): sums of 32 bits, signed bytes of A times unsigned bytes of B, four neighbours
// to a sum; exact.
//
// The order of sums in DotBf16 (TDPBF16PS, Intel's manual, volume 2): for each sum the products of
// the even elements and those of the odd ones are two chains of fused multiply-adds from zero; the
// two are added to each other, then to the sum. Rounding is to nearest even, denormals are zeros on
// both sides, MXCSR is neither read nor written.

namespace refrain::kernels::cpu {

// What LDTILECFG reads.
struct alignas(64) AmxTileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(AmxTileConfig) == 64);

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_AMX_TILES_H_
