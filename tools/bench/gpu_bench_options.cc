#include "tools/bench/gpu_bench_options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace refrain::bench {
namespace {

// Whether the flag is known and its value can be used.
bool Take(const std::string& flag, const std::string& value, GpuBenchOptions& options) {
  if (flag == options.place_flag) {
    options.place = value;
  } else if (flag == "--suites") {
    options.suites = absl::StrSplit(value, ',');
  } else if (flag == "--rounds") {
    return absl::SimpleAtoi(value, &options.rounds) && options.rounds >= 1;
  } else if (flag == "--json") {
    options.json = value;
  } else if (flag == "--markdown") {
    options.markdown = value;
  } else {
    return false;
  }
  return true;
}

}  // namespace

void RefuseGpuBench(const GpuBenchOptions& options, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", options.program.c_str(), what.c_str());
  std::exit(2);
}

GpuBenchOptions ParseGpuBenchOptions(int argc, char** argv, const GpuBenchOptions& defaults) {
  GpuBenchOptions options = defaults;
  options.command = options.program;
  for (int i = 1; i < argc; ++i) options.command += std::string(" ") + argv[i];
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--tiny") {
      options.tiny = true;
      options.rounds = 3;
      continue;
    }
    if (i + 1 == argc) {
      RefuseGpuBench(options, "cannot use '" + flag + "' (see the head of its source)");
    }
    const std::string value = argv[++i];
    if (!Take(flag, value, options)) RefuseGpuBench(options, "cannot use " + flag + " " + value);
  }
  for (const std::string& suite : options.suites) {
    if (std::find(defaults.suites.begin(), defaults.suites.end(), suite) == defaults.suites.end()) {
      RefuseGpuBench(
          options, "unknown suite '" + suite + "'; valid: " + absl::StrJoin(defaults.suites, ", "));
    }
  }
  return options;
}

GpuReport BeginGpuReport(const GpuBenchOptions& options, const std::string& card) {
  GpuReport report;
  report.command = options.command;
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof(date), "%F %R UTC", std::gmtime(&now));
  report.date = date;
  report.card = card;
  return report;
}

namespace {

bool WriteFiles(const GpuBenchOptions& options, const GpuReport& report) {
  bool written = true;
  if (!options.json.empty()) written &= WriteTextFile(options.json, report.Json());
  if (!options.markdown.empty()) written &= WriteTextFile(options.markdown, report.Markdown());
  return written;
}

}  // namespace

void SaveUnfinished(const GpuBenchOptions& options, GpuReport report) {
  report.errors.push_back("the run had not ended yet");
  WriteFiles(options, report);
}

int EndGpuReport(const GpuBenchOptions& options, GpuReport report) {
  if (options.tiny) report.misses.clear();
  std::fputs(report.Markdown().c_str(), stdout);
  const bool written = WriteFiles(options, report);
  for (const std::string& miss : report.misses) {
    std::fprintf(stderr, "not reached: %s\n", miss.c_str());
  }
  // Last, for gpu_check quotes the last line.
  for (const std::string& error : report.errors) std::fprintf(stderr, "%s\n", error.c_str());
  return written && report.errors.empty() && report.misses.empty() ? 0 : 1;
}

}  // namespace refrain::bench
