#ifndef REFRAIN_KERNELS_CPU_PROCESSORS_H_
#define REFRAIN_KERNELS_CPU_PROCESSORS_H_

#include <span>
#include <string>
#include <vector>

// Which processors (hardware threads, by the kernel's numbers) this process may run on, and how
// they are grouped. Any thread; nothing here fails: what the system does not tell is taken to be
// the simple case.

namespace refrain::kernels::cpu {

// Where the kernel tells of them.
struct ProcessorFiles {
  std::string processors = "/sys/devices/system/cpu";
  std::string nodes = "/sys/devices/system/node";
};

// Those of the affinity mask, ascending; all where it cannot be read. One at least.
std::vector<int> AllowedProcessors();

// How many cores `processors` belong to: hyperthreads of a core count once. A processor of which
// nothing is told is a core.
int CoresOf(std::span<const int> processors, const ProcessorFiles& files = {});

// How many NUMA nodes `processors` belong to, 1 where nothing is told.
int MemoryNodesOf(std::span<const int> processors, const ProcessorFiles& files = {});

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_PROCESSORS_H_
