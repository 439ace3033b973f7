#include "server/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "server/metrics/family_list.h"

namespace refrain::server::metrics {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Fields of /proc/self/stat, counted as proc(5) does.
struct ProcessStat {
  double cpu_ticks = 0;       // 14 and 15
  double threads = 0;         // 20
  double start_ticks = 0;     // 22, since boot
  double virtual_bytes = 0;   // 23
  double resident_pages = 0;  // 24
};

std::optional<ProcessStat> ReadStat() {
  const std::string text = ReadAll("/proc/self/stat");
  const size_t name_end = text.rfind(')');  // the program's name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStat stat;
  std::string field;
  for (int number = 3; number <= 24; ++number) {
    if (!(fields >> field)) return std::nullopt;
    const double value = number > 3 ? std::atof(field.c_str()) : 0;
    if (number == 14 || number == 15) stat.cpu_ticks += value;
    if (number == 20) stat.threads = value;
    if (number == 22) stat.start_ticks = value;
    if (number == 23) stat.virtual_bytes = value;
    if (number == 24) stat.resident_pages = value;
  }
  return stat;
}

std::optional<double> BootTime() {
  std::istringstream lines(ReadAll("/proc/stat"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("btime ")) return std::atof(line.c_str() + 6);
  }
  return std::nullopt;
}

std::optional<double> OpenFiles() {
  std::error_code error;
  double count = 0;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  if (error) return std::nullopt;
  return count - 1;  // without the folder's own
}

}  // namespace

void DescribeProcess(FamilyList* families) {
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (const auto stat = ReadStat(); stat.has_value()) {
    families->Counter("process_cpu_seconds_total", "Processor time, user and system.",
                      stat->cpu_ticks / ticks_per_second);
    families->Gauge("process_resident_memory_bytes", "Memory in RAM.",
                    stat->resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
    families->Gauge("process_virtual_memory_bytes", "Address space.", stat->virtual_bytes);
    families->Gauge("process_threads", "Threads.", stat->threads);
    if (const auto boot = BootTime(); boot.has_value()) {
      families->Gauge("process_start_time_seconds", "Start, in seconds since 1970.",
                      *boot + stat->start_ticks / ticks_per_second);
    }
  }
  if (const auto files = OpenFiles(); files.has_value()) {
    families->Gauge("process_open_fds", "Open file descriptors.", *files);
  }
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    families->Gauge("process_max_fds", "File descriptors that may be open.",
                    static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace refrain::server::metrics
