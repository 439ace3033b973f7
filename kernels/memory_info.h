#ifndef REFRAIN_KERNELS_MEMORY_INFO_H_
#define REFRAIN_KERNELS_MEMORY_INFO_H_

#include <cstddef>
#include <optional>

namespace refrain::kernels {

// Bytes that the system could give programs without swapping, what it would drop from its page
// cache included; nothing where it does not say. Any thread.
std::optional<size_t> MemAvailableBytes();
// Bytes of RAM that the system has for itself and programs; swap does not count.
std::optional<size_t> MemTotalBytes();

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_MEMORY_INFO_H_
