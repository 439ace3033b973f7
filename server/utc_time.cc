#include "server/utc_time.h"

#include <chrono>
#include <cstdio>
#include <ctime>

namespace refrain::server {

std::string UtcNow() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = ms / 1000;
  std::tm utc;
  gmtime_r(&seconds, &utc);
  char text[40];
  const size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + size, sizeof(text) - size, ".%03dZ", static_cast<int>(ms % 1000));
  return text;
}

}  // namespace refrain::server
