#ifndef REFRAIN_KERNELS_CPU_CONTROL_GROUPS_H_
#define REFRAIN_KERNELS_CPU_CONTROL_GROUPS_H_

#include <cstddef>
#include <string>

namespace refrain::kernels::cpu {

// Where the kernel tells of them.
struct ControlGroupFiles {
  std::string membership = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";  // memory/ and cpu/ below it for version 1
};

// Bytes that this process may yet take within the memory limits (in version 2 also memory.high,
// beyond which whoever allocates is slowed down) of the control groups it is in and of those above
// them, versions 1 and 2; the greatest size_t without a limit, or where the files cannot be read.
// What a group uses counts pages of files that were read: these are not counted here, as the kernel
// drops them before it refuses memory. Any thread; cannot fail.
size_t LeftInControlGroups(const ControlGroupFiles& files = {});

// Cores that this process can keep busy within the quotas of processor time of the same groups,
// rounded up and 1 at least; the greatest int without a quota, or where the files cannot be read.
// More threads would spend the quota early in each period, and all stand still for its rest. Any
// thread; cannot fail.
int CoresInControlGroups(const ControlGroupFiles& files = {});

}  // namespace refrain::kernels::cpu

#endif  // REFRAIN_KERNELS_CPU_CONTROL_GROUPS_H_
