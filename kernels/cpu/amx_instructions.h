#ifndef REFRAIN_KERNELS_CPU_AMX_INSTRUCTIONS_H_
#define REFRAIN_KERNELS_CPU_AMX_INSTRUCTIONS_H_

#include <cstdint>

#include "kernels/cpu/amx_tiles.h"

// Include only from files that are compiled for AMX.
namespace refrain::kernels::cpu {
namespace {

// The tile instructions. Written out because the intrinsics of g++ 12 are macros that want literal
// tile numbers, and its _tile_loadconfig tells the compiler of 8 of the 64 bytes it reads, so that
// the others are removed as dead stores.
struct HardwareTiles {
  static void Configure(const AmxTileConfig& config) {
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }

  static void Release() { asm volatile("tilerelease" : : : "memory"); }

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  template <int kTile>
  static void Load(const void* rows, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(rows), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }

  template <int kTile>
  static void LoadOnce(const void* rows, int64_t stride_bytes) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(rows), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }

  template <int kTile>
  static void Store(void* rows, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(rows), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }

  template <int kSum, int kA, int kB>
  static void DotBf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }

  template <int kSum, int kA, int kB>
  static void DotI8U8() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_AMX_INSTRUCTIONS_H_
