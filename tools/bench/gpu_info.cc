// Prints what tools/gpu_check writes down about the machine, one KEY=VALUE per line. Exit status 1,
// the reason on the last line, where there is no CUDA device that this program can use.

#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "kernels/cuda/runtime.h"

namespace {

// "570.86.15", as the kernel module calls itself; "unknown" where it does not show.
std::string DriverName() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    if (word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "unknown";
}

// The newest CUDA that the driver speaks, "12.8".
std::string DriverCuda() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return "none";
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (get == nullptr || get(&version) != 0) return "unknown";
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

int main() {
  const auto devices = refrain::kernels::cuda::ListDevices();
  if (!devices.ok()) {
    std::fprintf(stderr, "%s\n", std::string(devices.status().message()).c_str());
    return 1;
  }
  const auto& device = devices->front();
  std::printf("name=%s\ncapability=%d.%d\nmultiprocessors=%d\nmemory_mib=%zu\nl2_mib=%zu\n",
              device.name.c_str(), device.major, device.minor, device.multiprocessors,
              device.memory_bytes >> 20, device.l2_bytes >> 20);
  std::printf("devices=%zu\ndriver=%s\nruntime=%s\n", devices->size(), DriverName().c_str(),
              DriverCuda().c_str());
  return 0;
}
