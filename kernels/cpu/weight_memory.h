#ifndef REFRAIN_KERNELS_CPU_WEIGHT_MEMORY_H_
#define REFRAIN_KERNELS_CPU_WEIGHT_MEMORY_H_

#include <cstddef>
#include <map>
#include <mutex>

#include "kernels/device.h"

namespace refrain::kernels::cpu {

// Packs many weights into few huge-page arenas of another device: a model has hundreds of matrices,
// most below the 2 MiB of a huge page, and reading them by 4 KiB pages costs a tenth of the
// bandwidth. Memory is handed out in ascending order, aligned to 4,096: unlike that of other
// devices also where it is large, unless it has an arena of its own. An arena goes back to the
// device when the last allocation in it is freed. Thread-safe. It only hands out memory: copies go
// through the device below. Failure as the device below.
class WeightMemory : public Device {
 public:
  explicit WeightMemory(Device& device) : device_(device) {}

  // `huge_pages` is ignored: the arenas always ask for them.
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes, bool huge_pages) override;
  absl::Status Copy(std::byte* to, const std::byte* from, size_t bytes) override;
  absl::Status CopyToHost(std::byte* host, const std::byte* from, size_t bytes) override;
  absl::Status CopyFromHost(std::byte* to, const std::byte* host, size_t bytes) override;
  size_t AvailableBytes() const override { return device_.AvailableBytes(); }

 private:
  struct Arena {
    DeviceBuffer memory;
    size_t used_bytes = 0;
    int allocations = 0;
  };

  void Free(std::byte* data, size_t bytes) override;

  Device& device_;
  std::mutex mutex_;
  std::map<const std::byte*, Arena> arenas_;  // by first byte
  const std::byte* current_ = nullptr;        // the arena being filled
};

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_WEIGHT_MEMORY_H_
