#ifndef REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_GRID_H_
#define REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_GRID_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "kernels/cuda/emulated/emulated_thread.h"
#include "kernels/cuda/emulated/fiber.h"

namespace refrain::kernels::cuda::emulated {

class RaceDetector;

struct RaceCheck {
  RaceDetector* detector = nullptr;  // null: none
  const void* queue = nullptr;       // that the kernel is on
};

struct GridShape {
  Extent3 grid, block;
  size_t shared_bytes = 0;
  std::string kernel;
  bool early = false;  // begins before the kernel before it has ended
};

inline constexpr size_t kMaxSharedBytes = size_t{227} << 10;  // of one block, as on sm_90
inline constexpr int kMaxBlockThreads = 1024;

// Why a launch of this shape would be refused, if it would.
std::optional<std::string> RefusalOf(const GridShape& shape);

// Runs every block of a launch, one after the other, `body` once per thread. Returns what went
// wrong, naming kernel, block and thread; the rest of the grid is then not run. `stale_copies`:
// EmulatedOptions.
std::optional<std::string> RunGrid(const GridShape& shape, const std::function<void()>& body,
                                   FiberPool& fibers, bool stale_copies, const RaceCheck& races);

}  // namespace refrain::kernels::cuda::emulated

#endif  // REFRAIN_KERNELS_CUDA_EMULATED_EMULATED_GRID_H_
