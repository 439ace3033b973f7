// Times whole steps of models with random weights, and what bringing K and V back from the host
// costs beside computing them again.
//
//   gpu_model_bench [--suites NAMES] [--backend NAME] [--rounds N] [--tiny] [--json FILE]
//                   [--markdown FILE]
//
// Suites (a list with commas; all by default):
//   step     how much a decode step of a 7B shape grows with 4,096 shared tokens, over one with 64
//   prefill  4,096 new tokens of a 7B shape, beside the back end's own bf16 product
//   load     4,096 tokens' K and V of an 8B shape from pinned memory, layer by layer, beside a
//            prefill of 64 tokens, against computing them
//
// --backend is cuda (by default), cuda_emulated, or one of backend.kind's. --tiny runs small shapes
// of the same, for machines where times mean nothing. Values are noise and are not checked here:
// the conformance and golden tests do that.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/backend_factory.h"
#include "tests/support/cuda_cases.h"
#include "tools/bench/gpu_load.h"
#include "tools/bench/gpu_report.h"
#include "tools/bench/random_model.h"

namespace refrain::bench {
namespace {

struct Options {
  std::vector<std::string> suites = {"step", "prefill", "load"};
  std::string backend = "cuda";
  int rounds = 11;
  bool tiny = false;
  std::string json, markdown;

  int tokens() const { return tiny ? 128 : 4096; }
  int slots() const { return tiny ? 3 : 32; }
};

[[noreturn]] void Refuse(const std::string& what) {
  std::fprintf(stderr, "gpu_model_bench: %s\n", what.c_str());
  std::exit(2);
}

template <class T>
T MustHave(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}

std::unique_ptr<kernels::Backend> MakeAnyBackend(const std::string& name) {
  if (auto backend = testing::MakeCudaBackend(name); backend != nullptr) return backend;
  return MustHave(engine::MakeBackend({.kind = name}));
}

std::unique_ptr<RandomModel> LoadModel(const Options& options, const engine::ModelConfig& config,
                                       int rows) {
  const int context = options.tokens() + 2 * RandomModel::kChunkTokens;
  return MustHave(RandomModel::Load(MakeAnyBackend(options.backend),
                                    options.tiny ? ShapeTiny() : config, rows, context,
                                    context / RandomModel::kChunkTokens + 32));
}

std::string Shape(const Options& options, const std::string& name) {
  return options.tiny ? "a tiny shape" : "the " + name + " shape";
}

void RunStep(const Options& options, GpuReport& report) {
  const auto model = LoadModel(options, Shape7B(), options.slots());
  GpuTable table;
  table.name = "step";
  table.about = "A decode step of " + std::to_string(options.slots()) + " sequences, " +
                Shape(options, "7B") +
                ", random bf16 weights, all tokens shared; host clock, medians.";
  table.columns = {"shared tokens", "ms", "least", "most", "over the first row, ms"};
  double first = 0;
  for (const int shared : {64, options.tokens()}) {
    const StepTime time = model->TimeDecode(options.slots(), shared, options.rounds);
    if (first == 0) first = time.median_s;
    table.rows.push_back({shared, Milliseconds(time.median_s), Milliseconds(time.least_s),
                          Milliseconds(time.most_s), Milliseconds(time.median_s - first)});
  }
  report.tables.push_back(std::move(table));
}

void RunPrefill(const Options& options, GpuReport& report) {
  const auto model = LoadModel(options, Shape7B(), options.tokens());
  const int size = options.tiny ? 64 : 8192;
  const double peak = MustHave(model->ProductFlopsPerSecond(size, size, options.rounds));
  report.measured.emplace_back("bf16 product, " + std::to_string(size) + " cubed, TFLOP/s",
                               peak * 1e-12);
  const StepTime time = model->TimePrefill(0, options.tokens(), options.rounds);
  const double rate = model->PrefillFlops(0, options.tokens()) / time.median_s;
  GpuTable table;
  table.name = "prefill";
  table.about = "New tokens of one prompt, " + Shape(options, "7B") +
                ", random bf16 weights, products and attention.";
  table.columns = {"tokens", "ms", "least", "most", "TFLOP/s", "of the product's rate"};
  table.rows.push_back({options.tokens(),
                        Milliseconds(time.median_s),
                        Milliseconds(time.least_s),
                        Milliseconds(time.most_s),
                        {rate * 1e-12, 1},
                        {rate / peak, 2}});
  report.tables.push_back(std::move(table));
  if (rate < 0.6 * peak) report.misses.push_back("prefill is below 0.6 of the product's rate");
}

void RunLoad(const Options& options, GpuReport& report) {
  const auto model = LoadModel(options, Shape8B(), options.tokens() + kLoadNewTokens);
  RunGpuLoad(*model, options.tokens(), options.rounds, Shape(options, "8B"), report);
}

int Run(const Options& options, const std::string& command) {
  GpuReport report;
  report.command = command;
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof(date), "%F %R UTC", std::gmtime(&now));
  report.date = date;
  report.card = options.backend + " back end";
  for (const std::string& suite : options.suites) {
    if (suite == "step") {
      RunStep(options, report);
    } else if (suite == "prefill") {
      RunPrefill(options, report);
    } else if (suite == "load") {
      RunLoad(options, report);
    } else {
      Refuse("unknown suite '" + suite + "'; valid: step, prefill, load");
    }
  }
  if (options.tiny) report.misses.clear();  // of times that mean nothing
  const std::string markdown = report.Markdown();
  std::fputs(markdown.c_str(), stdout);
  bool written = true;
  if (!options.json.empty()) written &= WriteTextFile(options.json, report.Json());
  if (!options.markdown.empty()) written &= WriteTextFile(options.markdown, markdown);
  return written ? 0 : 1;
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
    } else if (flag == "--backend") {
      options.backend = value;
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
  std::string command = "gpu_model_bench";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return refrain::bench::Run(refrain::bench::Parse(argc, argv), command);
}
