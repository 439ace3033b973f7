#ifndef REFRAIN_TESTS_KERNELS_CPU_EMULATED_TILE_LOG_H_
#define REFRAIN_TESTS_KERNELS_CPU_EMULATED_TILE_LOG_H_

#include <cstdint>

namespace refrain::kernels::cpu {

// What emulated tiles have seen.
struct EmulatedTileLog {
  int64_t violations = 0;           // uses that fault, or mean nothing, on hardware
  const char* violation = nullptr;  // the last of them
  int64_t configurations = 0;
  int64_t dots = 0;
  bool in_use = false;  // configured and not released
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_TESTS_KERNELS_CPU_EMULATED_TILE_LOG_H_
