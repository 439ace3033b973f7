#ifndef REFRAIN_TOOLS_BENCH_GPU_BENCH_OPTIONS_H_
#define REFRAIN_TOOLS_BENCH_GPU_BENCH_OPTIONS_H_

#include <string>
#include <vector>

#include "tools/bench/gpu_report.h"

namespace refrain::bench {

// What the command lines of the GPU benchmarks have in common:
//   --suites NAMES (a list with commas)  --rounds N  --tiny  --json FILE  --markdown FILE
// and one flag of each program's own that says where it runs.
struct GpuBenchOptions {
  std::string program;
  std::string place_flag;           // "--device", "--backend"
  std::string place;                // what it is by default, then its value
  std::vector<std::string> suites;  // all there are, then those that are asked for
  int rounds = 0;
  bool tiny = false;  // small shapes, three rounds unless --rounds is behind it
  std::string json, markdown;
  std::string command;  // as it was given
};

// The command line over `defaults`; ends the program with status 2 where it makes no sense.
GpuBenchOptions ParseGpuBenchOptions(int argc, char** argv, const GpuBenchOptions& defaults);
[[noreturn]] void RefuseGpuBench(const GpuBenchOptions& options, const std::string& what);

GpuReport BeginGpuReport(const GpuBenchOptions& options, const std::string& card);
// Writes the files while there is more to come, so that a run that fails or is stopped later leaves
// behind what it had measured; they say that it had not ended.
void SaveUnfinished(const GpuBenchOptions& options, GpuReport report);
// Prints the report and writes the files; the program's exit status. Misses of a tiny run say
// nothing and are left out.
int EndGpuReport(const GpuBenchOptions& options, GpuReport report);

}  // namespace refrain::bench

#endif  // REFRAIN_TOOLS_BENCH_GPU_BENCH_OPTIONS_H_
