#include "kernels/cpu/processors.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace refrain::kernels::cpu {
namespace {

constexpr int kMostProcessors = 1 << 16;

// The first line; empty where there is none.
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Whether a list of the kernel's, as "0-3,8,10-11", has `processor`.
bool Contains(absl::string_view list, int processor) {
  for (const absl::string_view range : absl::StrSplit(list, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) continue;
    int last = first;
    if (!ends.second.empty() && !absl::SimpleAtoi(ends.second, &last)) continue;
    if (first <= processor && processor <= last) return true;
  }
  return false;
}

}  // namespace

std::vector<int> AllowedProcessors() {
  std::vector<int> processors;
  // The kernel refuses a mask that is smaller than its own.
  for (int size = 1024; size <= kMostProcessors; size *= 2) {
    const std::unique_ptr<cpu_set_t, decltype([](cpu_set_t* set) { CPU_FREE(set); })> set(
        CPU_ALLOC(size));
    const size_t bytes = CPU_ALLOC_SIZE(size);
    if (set == nullptr) break;
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) == 0) {
      for (int i = 0; i < size; ++i) {
        if (CPU_ISSET_S(i, bytes, set.get())) processors.push_back(i);
      }
      break;
    }
    if (errno != EINVAL) break;
  }
  if (processors.empty()) {
    const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int i = 0; i < all; ++i) processors.push_back(i);
  }
  return processors;
}

int CoresOf(std::span<const int> processors, const ProcessorFiles& files) {
  std::set<std::string> cores;
  int alone = 0;
  for (const int processor : processors) {
    const std::string siblings = ReadLine(
        absl::StrCat(files.processors, "/cpu", processor, "/topology/thread_siblings_list"));
    if (siblings.empty()) {
      ++alone;
    } else {
      cores.insert(siblings);
    }
  }
  return std::max(1, alone + static_cast<int>(cores.size()));
}

int MemoryNodesOf(std::span<const int> processors, const ProcessorFiles& files) {
  int nodes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(files.nodes, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    absl::string_view number = name;
    if (int node = 0; !absl::ConsumePrefix(&number, "node") || !absl::SimpleAtoi(number, &node)) {
      continue;
    }
    const std::string list = ReadLine(absl::StrCat(files.nodes, "/", name, "/cpulist"));
    nodes += std::any_of(processors.begin(), processors.end(),
                         [&list](int processor) { return Contains(list, processor); });
  }
  return std::max(1, nodes);
}

}  // namespace refrain::kernels::cpu
