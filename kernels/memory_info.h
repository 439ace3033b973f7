#ifndef REFRAIN_KERNELS_MEMORY_INFO_H_
#define REFRAIN_KERNELS_MEMORY_INFO_H_

#include <cstddef>
#include <string>

namespace refrain::kernels {

// Where the kernel tells of memory. /proc/meminfo is not there for a unit with ProcSubset=pid; then
// the NUMA nodes' files are added up, and where there are none sysinfo(2) is asked.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string nodes = "/sys/devices/system/node";  // node0/meminfo, ...
};

// Bytes that the system could give programs without swapping, what it would drop from its page
// cache included. sysinfo does not tell of the page cache: then it is less than there is. 0 where
// the system says nothing at all. Any thread; cannot fail.
size_t MemAvailableBytes(const MemoryFiles& files = {});
// Bytes of RAM that the system has for itself and programs; swap does not count. 0 and the rest as
// above.
size_t MemTotalBytes(const MemoryFiles& files = {});

}  // namespace refrain::kernels

#endif  // REFRAIN_KERNELS_MEMORY_INFO_H_
