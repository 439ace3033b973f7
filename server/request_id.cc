#include "server/request_id.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <random>

namespace refrain::server {

bool IsAcceptableRequestId(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string MakeRequestId() {
  static const uint64_t process = [] {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32) | device();
  }();
  static std::atomic<uint64_t> count{0};
  char text[40];
  const int size =
      std::snprintf(text, sizeof(text), "%016llx%08llx", static_cast<unsigned long long>(process),
                    static_cast<unsigned long long>(++count));
  return std::string(text, size);
}

}  // namespace refrain::server
