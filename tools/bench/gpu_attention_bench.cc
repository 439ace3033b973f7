// Times attention on a CUDA device beside what the same run measured the device to be capable of.
// Every case is first compared with double arithmetic on some of its rows. K and V are random, cold
// in the L2 cache: launches go from layer to layer.
//
//   gpu_attention_bench [--suites NAMES] [--device N] [--rounds N] [--tiny] [--json FILE]
//                       [--markdown FILE]
//
// Suites (a list with commas; all by default):
//   grid     ChunkAttention's table 3, two-phase and paged, against bandwidth and the paper's times
//
// --tiny runs small shapes of the same: for the emulated device, where times mean nothing.
// Exit status 1 where a result is wrong; a bound that was missed is printed and does not fail.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tools/bench/gpu_bench_device.h"
#include "tools/bench/gpu_grid.h"
#include "tools/bench/gpu_report.h"

namespace refrain::bench {
namespace {

struct Options {
  std::vector<std::string> suites = {"grid"};
  int device = 0;
  int rounds = 31;
  bool tiny = false;
  std::string json, markdown;
};

constexpr PaperRow kTinyRows[] = {{128, 0, 332.5}, {128, 64, 198.9}, {128, 128, 56.0}};

void RunSuite(const std::string& suite, const Options& options, BenchDevice& device,
              GpuReport& report) {
  if (suite == "grid") {
    GridSettings settings;
    settings.rounds = options.rounds;
    if (options.tiny) {
      settings.rows = kTinyRows;
      settings.shape = {.slots = 3, .num_heads = 2, .num_kv_heads = 2, .head_dim = 64};
      settings.pool_bytes_max = settings.copied_bytes = size_t{4} << 20;
      settings.layers = 2;
    } else {
      settings.rows = PaperRows();
      settings.shape = {.slots = 32, .num_heads = 32, .num_kv_heads = 32, .head_dim = 128};
      settings.copied_bytes = size_t{2} << 30;
      settings.pool_bytes_max = device.runtime().FreeBytes() / 10 * 9;
    }
    RunGpuGrid(device, settings, report);
    return;
  }
  std::fprintf(stderr, "unknown suite '%s'; valid: grid\n", suite.c_str());
  std::exit(2);
}

int Run(const Options& options, const std::string& command) {
  BenchDevice device(options.device);
  const kernels::cuda::DeviceProperties& properties = device.runtime().properties();
  GpuReport report;
  report.command = command;
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof(date), "%F %R UTC", std::gmtime(&now));
  report.date = date;
  report.card = properties.name + ", sm_" + std::to_string(properties.capability());
  for (const std::string& suite : options.suites) RunSuite(suite, options, device, report);
  if (options.tiny) report.misses.clear();  // of times that mean nothing
  const std::string markdown = report.Markdown();
  std::fputs(markdown.c_str(), stdout);
  bool written = true;
  if (!options.json.empty()) written &= WriteTextFile(options.json, report.Json());
  if (!options.markdown.empty()) written &= WriteTextFile(options.markdown, markdown);
  for (const std::string& error : report.errors) std::fprintf(stderr, "%s\n", error.c_str());
  return written && report.errors.empty() ? 0 : 1;
}

[[noreturn]] void Refuse(const std::string& what) {
  std::fprintf(stderr, "gpu_attention_bench: %s\n", what.c_str());
  std::exit(2);
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--tiny") {
      options.tiny = true;
      options.rounds = 3;
      continue;
    }
    if (i + 1 == argc) Refuse("cannot use '" + flag + "' (see the head of its source)");
    const std::string value = argv[++i];
    bool ok = true;
    if (flag == "--suites") {
      options.suites = absl::StrSplit(value, ',');
    } else if (flag == "--device") {
      ok = absl::SimpleAtoi(value, &options.device) && options.device >= 0;
    } else if (flag == "--rounds") {
      ok = absl::SimpleAtoi(value, &options.rounds) && options.rounds >= 1;
    } else if (flag == "--json") {
      options.json = value;
    } else if (flag == "--markdown") {
      options.markdown = value;
    } else {
      ok = false;
    }
    if (!ok) Refuse("cannot use " + flag + " " + value);
  }
  return options;
}

}  // namespace
}  // namespace refrain::bench

int main(int argc, char** argv) {
  std::string command = "gpu_attention_bench";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return refrain::bench::Run(refrain::bench::Parse(argc, argv), command);
}
