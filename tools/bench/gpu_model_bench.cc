// Times whole steps of models with random weights, and what bringing K and V back from the host
// costs beside computing them again.
//
//   gpu_model_bench [--suites NAMES] [--backend KIND] [--device N] [--rounds N] [--tiny]
//                   [--json FILE] [--markdown FILE]
//
// Suites (a list with commas; all by default):
//   step     how much a decode step of a 7B shape grows with 4,096 shared tokens, over one with 64
//   prefill  4,096 new tokens of a 7B shape, beside the back end's own bf16 product
//   load     4,096 tokens' K and V of an 8B shape from pinned memory, layer by layer, beside a
//            prefill of 64 tokens, against computing them
//
// --tiny runs small shapes of the same, for machines where times mean nothing. Values are noise and
// are not checked here: the conformance and golden tests do that.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda/chunk_mover.h"
#include "tools/bench/gpu_bench_device.h"
#include "tools/bench/gpu_report.h"
#include "tools/bench/random_model.h"

namespace refrain::bench {
namespace {

namespace gpu = kernels::cuda;

struct Options {
  std::vector<std::string> suites = {"step", "prefill", "load"};
  engine::BackendOptions backend = {.kind = "cuda", .compute_dtype = "bf16"};
  int rounds = 11;
  bool tiny = false;
  std::string json, markdown;

  int tokens() const { return tiny ? 128 : 4096; }
  int slots() const { return tiny ? 3 : 32; }
};

std::unique_ptr<RandomModel> LoadModel(const Options& options, const engine::ModelConfig& config,
                                       int rows) {
  const int context = options.tokens() + 2 * RandomModel::kChunkTokens;
  return MustHave(RandomModel::Load(options.tiny ? ShapeTiny() : config, options.backend, rows,
                                    context, context / RandomModel::kChunkTokens + 32));
}

std::string Shape(const Options& options, const std::string& name) {
  return options.tiny ? "a tiny shape" : "the " + name + " shape";
}

GpuCell Milliseconds(double seconds) { return {seconds * 1e3, 3}; }

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

// Every 8 bytes another value.
void FillWithWords(std::byte* data, size_t bytes) {
  auto* const words = reinterpret_cast<uint64_t*>(data);
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) words[i] = i * 0x9e3779b97f4a7c15u;
}

void CheckLoaded(BenchDevice& device, const std::vector<gpu::ChunkPlaces>& places, size_t bytes) {
  for (const gpu::ChunkPlaces& place : places) {
    const std::vector<std::byte> got = device.Download(place.device, bytes);
    if (std::memcmp(got.data(), place.host, bytes) != 0) {
      std::fprintf(stderr, "a loaded chunk is not what was in host memory\n");
      std::exit(1);
    }
  }
}

// Chunks go to places of their own beside the model's pool: what the copies hold up shows, whose
// bytes they are does not matter here.
void RunLoad(const Options& options, GpuReport& report) {
  constexpr int kNewTokens = 64;
  const auto model = LoadModel(options, Shape8B(), options.tokens() + kNewTokens);
  const kvcache::KvLayout& layout = model->storage().layout();
  BenchDevice device(options.backend.device);
  const size_t chunks = static_cast<size_t>(options.tokens()) / RandomModel::kChunkTokens;
  std::byte* const on_device = device.Allocate(chunks * layout.chunk_bytes());
  std::byte* const on_host = device.AllocatePinned(chunks * layout.chunk_bytes());
  FillWithWords(on_host, chunks * layout.chunk_bytes());
  std::vector<gpu::ChunkPlaces> places;
  for (size_t i = 0; i < chunks; ++i) {
    places.push_back({on_device + i * layout.chunk_bytes(), on_host + i * layout.chunk_bytes()});
  }
  const int layers = layout.dimensions().num_layers;
  const auto mover =
      MustHave(gpu::ChunkMover::Create(device.runtime(), {layers, layout.layer_bytes()}));
  const auto load = [&] {
    auto move = MustHave(mover->Load(places, device.stream()));
    for (int layer = 0; layer < layers; ++layer) MustBeOk(move->UseLayer(layer, device.stream()));
    return move;
  };
  const GraphTiming alone = device.TimeWork(
      [&] {
        const auto move = load();
        if (move->Wait() != gpu::ChunkMove::State::kDone) MustBeOk(move->status());
      },
      options.rounds);
  CheckLoaded(device, places, layout.chunk_bytes());
  const StepTime fresh = model->TimePrefill(options.tokens(), kNewTokens, options.rounds);
  const StepTime recomputed =
      model->TimePrefill(0, options.tokens() + kNewTokens, std::min(options.rounds, 5));
  std::unique_ptr<gpu::ChunkMove> move;
  const StepTime beside = model->TimePrefill(options.tokens(), kNewTokens, options.rounds, [&] {
    move.reset();  // waits for the one before
    move = load();
  });
  if (move->Wait() != gpu::ChunkMove::State::kDone) MustBeOk(move->status());
  const double together = std::max(alone.median_s, beside.median_s);
  GpuTable table;
  table.name = "load";
  table.about = std::to_string(options.tokens()) + " tokens of " + Shape(options, "8B") + " (" +
                GpuCell(model->KvBytes(options.tokens()) * 1e-6, 0).Text() +
                " MB) from pinned memory. Load and prefill run beside each other, so together they "
                "take the longer of the two.";
  table.columns = {"what", "ms", "of computing it again"};
  const auto row = [&](const char* what, double seconds) {
    table.rows.push_back({what, Milliseconds(seconds), {seconds / recomputed.median_s, 3}});
  };
  row("load alone", alone.median_s);
  row("prefill of 64 tokens", fresh.median_s);
  row("prefill of 64 tokens while loading", beside.median_s);
  row("load under the prefill", together);
  row("prefill of all", recomputed.median_s);
  report.tables.push_back(std::move(table));
  report.measured.emplace_back("load, GB/s",
                               model->KvBytes(options.tokens()) / alone.median_s * 1e-9);
  if (together > 0.10 * recomputed.median_s) {
    report.misses.push_back("loading takes over 0.10 of computing it again");
  }
}

[[noreturn]] void Refuse(const std::string& what) {
  std::fprintf(stderr, "gpu_model_bench: %s\n", what.c_str());
  std::exit(2);
}

int Run(const Options& options, const std::string& command) {
  GpuReport report;
  report.command = command;
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof(date), "%F %R UTC", std::gmtime(&now));
  report.date = date;
  report.card =
      options.backend.kind + " back end, device " + std::to_string(options.backend.device);
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
      options.backend.kind = value;
    } else if (flag == "--device") {
      ok = absl::SimpleAtoi(value, &options.backend.device) && options.backend.device >= 0;
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
