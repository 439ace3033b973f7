#include "kernels/cuda/emulated/code_place.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>

namespace refrain::kernels::cuda::emulated {

std::string DescribePlace(uint32_t address_bits) {
  if (address_bits == 0) return "";
  // Any address of the program tells where it was loaded.
  Dl_info program;
  if (dladdr(reinterpret_cast<const void*>(&DescribePlace), &program) == 0) return "";
  const auto base = reinterpret_cast<uintptr_t>(program.dli_fbase);
  const auto offset = address_bits - static_cast<uint32_t>(base) - 1;  // of the call, not behind it
  std::array<char, 128> command;
  // Not /proc/self: that would be addr2line's own.
  std::snprintf(command.data(), command.size(), "addr2line -s -e /proc/%d/exe 0x%x 2>/dev/null",
                static_cast<int>(getpid()), offset);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.data(), "r"), pclose);
  std::array<char, 256> line{};
  if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return "";
  std::string place = line.data();
  while (!place.empty() && place.back() == '\n') place.pop_back();
  return " (" + place + ")";
}

}  // namespace refrain::kernels::cuda::emulated
