// Times whole steps of models with random weights, and what bringing K and V back from the host
// costs beside computing them again.
//
//   gpu_model_bench [--suites NAMES] [--backend NAME] [--rounds N] [--tiny] [--json FILE]
//                   [--markdown FILE]
//
// Suites (a list with commas; all by default):
//   step     how much a decode step of a 7B shape grows with 4,096 shared tokens, over one with 64,
//            beside what the attention of all its layers takes alone
//   prefill  4,096 new tokens of a 7B shape, beside one large bf16 product
//   load     4,096 tokens' K and V of an 8B shape from pinned memory, layer by layer, under a
//            prefill of 64 tokens whose layers wait for theirs, against computing them
//   products 1 to 512 rows by weights of every common type, of a 7B shape's FFN
//
// --backend is cuda (by default), cuda_emulated, or one of backend.kind's. --tiny runs small shapes
// of the same, for machines where times mean nothing. Values are noise and are not checked here:
// the conformance and golden tests do that.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "engine/backend_factory.h"
#include "tests/support/cuda_cases.h"
#include "tools/bench/gpu_bench_options.h"
#include "tools/bench/gpu_load.h"
#include "tools/bench/gpu_products.h"
#include "tools/bench/gpu_report.h"
#include "tools/bench/layer_gate.h"
#include "tools/bench/random_model.h"

namespace refrain::bench {
namespace {

// Of what the attention of all layers takes alone, a step's growth with what is shared.
constexpr double kMostGrowth = 1.3;

int Tokens(const GpuBenchOptions& options) { return options.tiny ? 128 : 4096; }
int Slots(const GpuBenchOptions& options) { return options.tiny ? 3 : 32; }

template <class T>
T MustHave(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}

// As the daemon has it, or with products by our own kernels alone.
constexpr const char* kAsServed = "checked";
constexpr const char* kOwnProducts = "own_products";

std::unique_ptr<kernels::Backend> MakeAnyBackend(const std::string& name, const char* variant) {
  if (auto backend = testing::MakeCudaBackend(name, variant); backend != nullptr) return backend;
  return MustHave(engine::MakeBackend({.kind = name}));
}

std::unique_ptr<RandomModel> LoadModel(const GpuBenchOptions& options,
                                       const engine::ModelConfig& config, int rows,
                                       std::unique_ptr<kernels::Backend> backend) {
  const int context = Tokens(options) + 2 * RandomModel::kChunkTokens;
  return MustHave(RandomModel::Load(std::move(backend), options.tiny ? ShapeTiny() : config, rows,
                                    context, context / RandomModel::kChunkTokens + 32));
}

std::string Shape(const GpuBenchOptions& options, const std::string& name) {
  return options.tiny ? "a tiny shape" : "the " + name + " shape";
}

void RunStep(const GpuBenchOptions& options, GpuReport& report) {
  const auto model =
      LoadModel(options, Shape7B(), Slots(options), MakeAnyBackend(options.place, kAsServed));
  GpuTable table;
  table.name = "step";
  table.about = "A decode step of " + std::to_string(Slots(options)) + " sequences, " +
                Shape(options, "7B") +
                ", random bf16 weights, all tokens shared; host clock, medians. Products by " +
                model->products() + ".";
  table.columns = {"shared tokens",
                   "ms",
                   "least",
                   "most",
                   "over the first row, ms",
                   "attention of all layers alone, ms"};
  double first = 0;
  for (const int shared : {64, Tokens(options)}) {
    const StepTime time = model->TimeDecode(Slots(options), shared, options.rounds);
    const StepTime attention =
        MustHave(model->TimeDecodeAttention(Slots(options), shared, options.rounds));
    if (first == 0) first = time.median_s;
    const double growth = time.median_s - first;
    table.rows.push_back({shared, Milliseconds(time.median_s), Milliseconds(time.least_s),
                          Milliseconds(time.most_s), Milliseconds(growth),
                          Milliseconds(attention.median_s)});
    if (growth > kMostGrowth * attention.median_s) {
      report.misses.push_back("a step grows by more than " + GpuCell(kMostGrowth, 1).Text() +
                              " times what attention takes alone");
    }
  }
  report.tables.push_back(std::move(table));
}

void RunPrefill(const GpuBenchOptions& options, GpuReport& report) {
  const int size = options.tiny ? 64 : 8192;
  GpuTable table;
  table.name = "prefill";
  table.about = "New tokens of one prompt, " + Shape(options, "7B") +
                ", random bf16 weights, products and attention; as the daemon computes it, and "
                "with products by our own kernels alone.";
  table.columns = {"products by",          "tokens", "ms", "least", "most", "TFLOP/s",
                   "of the product's rate"};
  double peak = 0, best_rate = 0;
  for (const char* const variant : {kAsServed, kOwnProducts}) {
    const auto model =
        LoadModel(options, Shape7B(), Tokens(options), MakeAnyBackend(options.place, variant));
    if (variant == kAsServed) {
      // As many rows as the library was tried at: no other algorithm is the right one for more.
      peak = MustHave(model->ProductFlopsPerSecond(Tokens(options), size, options.rounds));
      report.measured.emplace_back("bf16 product, " + std::to_string(Tokens(options)) +
                                       " rows by " + std::to_string(size) +
                                       " squared, rounding of activations included, TFLOP/s",
                                   peak * 1e-12);
    }
    const StepTime time = model->TimePrefill(0, Tokens(options), options.rounds);
    const double rate = model->PrefillFlops(0, Tokens(options)) / time.median_s;
    if (variant == kAsServed) best_rate = rate;
    table.rows.push_back({model->products(),
                          Tokens(options),
                          Milliseconds(time.median_s),
                          Milliseconds(time.least_s),
                          Milliseconds(time.most_s),
                          {rate * 1e-12, 1},
                          {rate / peak, 2}});
  }
  report.tables.push_back(std::move(table));
  if (best_rate < 0.6 * peak) {
    report.misses.push_back("prefill is below 0.6 of the product's rate");
  }
}

void RunLoad(const GpuBenchOptions& options, GpuReport& report) {
  auto gated = std::make_unique<LayerGate>(MakeAnyBackend(options.place, kAsServed));
  LayerGate& gate = *gated;
  const auto model =
      LoadModel(options, Shape8B(), Tokens(options) + kLoadNewTokens, std::move(gated));
  RunGpuLoad(*model, gate, Tokens(options), options.rounds, Shape(options, "8B"), report);
}

void RunProducts(const GpuBenchOptions& options, GpuReport& report) {
  ProductsShape shape = {.n = 11008, .k = 4096, .working_set_bytes = size_t{256} << 20};
  if (options.tiny) shape = {.n = 64, .k = 256, .rows = {1, 128}, .calls = 2};
  RunGpuProducts(*MakeAnyBackend(options.place, kAsServed), shape, options.rounds, report);
}

int Run(const GpuBenchOptions& options) {
  GpuReport report = BeginGpuReport(options, options.place + " back end");
  for (const std::string& suite : options.suites) {
    if (suite == "step") RunStep(options, report);
    if (suite == "prefill") RunPrefill(options, report);
    if (suite == "load") RunLoad(options, report);
    if (suite == "products") RunProducts(options, report);
    SaveUnfinished(options, report);
  }
  return EndGpuReport(options, std::move(report));
}

}  // namespace
}  // namespace refrain::bench

int main(int argc, char** argv) {
  return refrain::bench::Run(
      refrain::bench::ParseGpuBenchOptions(argc, argv,
                                           {.program = "gpu_model_bench",
                                            .place_flag = "--backend",
                                            .place = "cuda",
                                            .suites = {"step", "prefill", "load", "products"},
                                            .rounds = 11}));
}
