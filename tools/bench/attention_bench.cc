// Times ChunkAttention of the CPU back end beside what the same run measured the machine to be
// capable of. Every case is first compared with the reference on a sample of its rows. K and V are
// random.
//
// Suites (kUsage says how they are chosen):
//   decode      one step over keys that nobody shares, against the read bandwidth; --window: the
//               last so many of twice as many and one
//   prefill     new prompts, against multiply-adds in registers and against our own product, both
//               of the arithmetic that the level has for the element type, and against the products
//               of Q4_1 weights that the server runs for quantised models: activations of 15 bits,
//               and of 8 as rows of a prompt have them that nothing is chosen from
//   grid        ChunkAttention's table 3 and GQA shapes: naive, paged, paged with shared pages,
//               two_phase, in turn within each round
//   completion  its figure 3: token rate over completion length
//   batch       its figure 4: token rate over batch size
//
// Exit status: 0; 1 when a goal of the grid was missed or a file not written, 2 when nothing was
// measured, 3 when a result was wrong.
// What it does not show: short contexts run from the caches (more than all of the read bandwidth is
// possible there); the rates of the curves are those of one layer's attention alone.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/thread_pool.h"
#include "tools/bench/attention_contest.h"
#include "tools/bench/attention_grid.h"
#include "tools/bench/attention_report.h"
#include "tools/bench/attention_workload.h"
#include "tools/bench/cpu_peaks.h"
#include "tools/bench/machine_peaks.h"
#include "tools/bench/random_weight.h"

namespace refrain::bench {
namespace {

using kernels::DType;
namespace cpu = kernels::cpu;

constexpr AttentionModel kModels[] = {{"32/32 d=128", 32, 32, 128},
                                      {"9/3 d=64", 9, 3, 64},
                                      {"32/8 d=128", 32, 8, 128},
                                      {"32/4 d=64", 32, 4, 64}};
constexpr const char* kUsage =
    R"(attention_bench [--suite NAMES] [--kv TYPES] [--prompts LENGTHS] [--filter TEXT] [--pairs N]
                [--pool-gb GB] [--window TOKENS] [--layers N] [--reproducible] [--threads N] [--isa LEVEL]
                [--cpu-time] [--json FILE] [--csv FILE]

Lists have commas. Suites: decode, prefill, grid, completion, batch; types: f16, bf16, f32, fp8_e4m3
(all but the last, where none is named).
--filter: cases whose "SUITE MODEL TYPE" holds the text, such as "grid 9/3 d=64 f16".
--window: rows of the suite decode see so many tokens (the other suites have no window).
--layers: chunks of the suite decode are as far apart as in a cache of N layers, of which one is read
(default 1: they lie one behind the other).
--pool-gb: K and V of at most so many GB; methods that need more are left out (default 7, at most half
of the free memory).
--cpu-time measures the CPU time of the process: for a busy machine, with --threads 1.
)";
constexpr const char* kSuites[] = {"decode", "prefill", "grid", "completion", "batch"};
constexpr const char* kLoopOrder =
    "loop order of paged and paged_shared: one task per (sequence, KV head), sequence by sequence "
    "and head by head inside, taken by whichever thread is free; in a task its keys in segments of "
    "512: scores, softmax, values. So with shared pages a sequence reads what the one before it "
    "read, as far as the caches keep it.";

// What 96 sequences of 4,128 keys take in f16 (32 KV heads of 128), and at most half of the memory
// that is free: what swaps is not measured.
double DefaultPoolGb() {
  double gb = 7;
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  for (double kib = 0; meminfo >> name >> kib; meminfo.ignore(99, '\n')) {
    if (name == "MemAvailable:") gb = std::min(gb, kib * 1024e-9 / 2);
  }
  return gb;
}

struct Options {
  std::vector<std::string> suites{std::begin(kSuites), std::end(kSuites)};
  std::vector<DType> kv_types = {DType::kF16, DType::kBF16, DType::kF32};
  std::vector<int> prompts = {1024, 2048, 4096};
  int threads = 0;
  std::string isa = "auto";
  bool reproducible = false;
  Clock clock = Clock::kWall;
  std::string filter, json, csv;
  int pairs = 20;
  double pool_gb = DefaultPoolGb();
  int window = 0;  // 0: none
  int layers = 1;
};

// Of one call.
struct Timing {
  double median_s, least_s;
};

// Of rounds of all `calls` in turn.
std::vector<Timing> TimeInTurn(Clock clock, const std::vector<std::function<void()>>& calls) {
  std::vector<std::vector<double>> seconds(calls.size());
  for (const auto& call : calls) call();
  double total = 0;
  while (seconds[0].size() < 5 || (total < 0.4 && seconds[0].size() < 200)) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const double begin = Seconds(clock);
      calls[i]();
      seconds[i].push_back(Seconds(clock) - begin);
      total += seconds[i].back();
    }
  }
  std::vector<Timing> timings;
  for (auto& values : seconds) {
    std::sort(values.begin(), values.end());
    timings.push_back({values[values.size() / 2], values[0]});
  }
  return timings;
}

// A product of f32 rows and weights of one type by our own kernels: what attention's products are
// measured by.
class OwnProduct {
 public:
  // `coarse`: all rows are coarse (LinearArgs::coarse_rows).
  OwnProduct(int threads, const std::string& isa, DType dtype, bool coarse = false)
      : backend_(*cpu::CpuBackend::Create({.threads = threads, .isa = isa})),
        x_(kRows * kSize),
        out_(kRows * kSize),
        coarse_rows_(coarse ? kRows : 0, 1) {
    std::minstd_rand random(3);
    std::normal_distribution<float> normal;
    for (float& v : x_) v = normal(random);
    const std::vector<std::byte> data = RandomWeight(dtype, kSize, kSize, 1);
    const kernels::WeightSlice slice = {dtype, kSize, kSize, data.data(), {}};
    weight_ = *backend_->PackLinear({&slice, 1}, {});
  }

  void Run() {
    backend_->Linear({weight_.get(), kernels::F32View(x_.data(), kRows, kSize),
                      kernels::F32View(out_.data(), kRows, kSize), false, false, coarse_rows_});
  }
  double Flops() const { return 2.0 * kRows * kSize * kSize; }

 private:
  static constexpr int64_t kRows = 512, kSize = 2048;

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::LinearWeight> weight_;
  std::vector<float> x_, out_;
  std::vector<uint8_t> coarse_rows_;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        pool_(options.threads),
        isa_(*cpu::ResolveIsa(options.isa)),
        contest_(pool_, isa_, options.clock) {}

  int Run(const std::string& command) {
    report_.command = command;
    report_.processor = ProcessorName();
    report_.level = cpu::Name(isa_);
    report_.threads = pool_.threads();
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof(date), "%F %R UTC", std::gmtime(&now));
    report_.date = date;
    report_.read_bytes_per_s = ReadBytesPerSecond(pool_, options_.clock);
    report_.flops_per_s = AllFlopsPerSecond();
    std::printf("%s\n%s, level %s, %d threads%s, %s\n", command.c_str(), report_.processor.c_str(),
                report_.level.c_str(), pool_.threads(),
                options_.reproducible ? ", reproducible" : "", date);
    PrintCeilings("at the start");
    std::printf("%s\n", kLoopOrder);
    for (const std::string& suite : options_.suites) {
      if (suite == "decode") Decode();
      if (suite == "prefill") Prefill();
      if (suite == "grid") RunAttentionGrid(contest_, Grid(), report_);
      if (suite == "completion") RunCompletionCurve(contest_, Grid(), report_);
      if (suite == "batch") RunBatchCurve(contest_, Grid(), report_);
    }
    if (cases_ == 0 && report_.measurements.empty()) {
      std::fprintf(stderr, "attention_bench: nothing was measured: --filter \"%s\" fits no case\n",
                   options_.filter.c_str());
      return 2;
    }
    PrintCeilings("at the end");
    bool written = true;
    if (!options_.json.empty()) written &= report_.WriteJson(options_.json);
    if (!options_.csv.empty()) written &= report_.WriteCsv(options_.csv);
    return written && !report_.missed ? 0 : 1;
  }

 private:
  void PrintCeilings(const char* when) {
    std::printf("\nceilings %s: read %.1f GB/s", when,
                ReadBytesPerSecond(pool_, options_.clock) * 1e-9);
    for (const auto& [name, rate] : AllFlopsPerSecond()) {
      std::printf(", %s %.0f GFLOP/s", name.c_str(), rate * 1e-9);
    }
    std::printf("\n");
  }

  // Of every arithmetic that the level has.
  std::vector<std::pair<std::string, double>> AllFlopsPerSecond() {
    std::vector<std::pair<std::string, double>> rates;
    for (const Arithmetic arithmetic :
         {Arithmetic::kF32, Arithmetic::kWords, Arithmetic::kBf16Dots, Arithmetic::kBf16Tiles}) {
      if (arithmetic == Arithmetic::kWords && isa_ < cpu::Isa::kAvx512Vnni) break;
      if (arithmetic == Arithmetic::kBf16Dots && isa_ < cpu::Isa::kAvx512Bf16) break;
      if (arithmetic == Arithmetic::kBf16Tiles && isa_ < cpu::Isa::kAmx) break;
      rates.emplace_back(Name(arithmetic), FlopsPerSecond(pool_, isa_, arithmetic, options_.clock));
    }
    return rates;
  }

  Arithmetic ArithmeticOf(DType kv) const {
    return AttentionArithmetic(isa_, kv, options_.reproducible);
  }

  GridOptions Grid() const {
    GridOptions grid;
    grid.models = kModels;
    grid.kv_types = options_.kv_types;
    grid.prompts = options_.prompts;
    grid.filter = options_.filter;
    grid.reproducible = options_.reproducible;
    grid.pairs = options_.pairs;
    grid.pool_bytes_max = options_.pool_gb * 1e9;
    return grid;
  }

  bool Wanted(const char* suite, const AttentionModel& model, DType kv) const {
    const std::string title =
        std::string(suite) + " " + model.name + " " + std::string(kernels::Traits(kv).name);
    return title.find(options_.filter) != std::string::npos;
  }

  // One call, checked first. The others are timed beside it.
  std::vector<Timing> Time(AttentionWorkload& work, const BatchShape& shape,
                           std::vector<std::function<void()>> others) {
    ++cases_;
    work.args().reproducible = options_.reproducible;
    const auto attend = [&] { cpu::ChunkAttention(pool_, isa_, work.args(), scratch_); };
    attend();
    const RowError error = ArithmeticOf(work.args().kv.dtype) == Arithmetic::kF32
                               ? RowError::kOfF32
                               : RowError::kOfBf16Rows;
    work.Check(0, 0, error);
    work.Check(shape.slots - 1, shape.rows - 1, error);
    others.insert(others.begin(), attend);
    return TimeInTurn(options_.clock, others);
  }

  void Decode() {
    std::printf(
        "\n| decode | b | keys | us (least) | GB/s | of read |\n|---|---|---|---|---|---|\n");
    for (const AttentionModel& model : kModels) {
      for (const DType kv : options_.kv_types) {
        if (!Wanted("decode", model, kv)) continue;
        // An even window begins at an odd key, as every second step's does.
        const int window = options_.window;
        for (const int keys : window > 0 ? std::vector{window} : std::vector{512, 2048, 8192}) {
          for (const int slots : {1, 8, 32}) {
            const BatchShape shape = {
                .slots = slots, .keys = keys + (window > 0 ? window + 1 : 0), .window = window};
            const double bytes = 1.0 * slots * keys * static_cast<double>(model.KvElements()) *
                                 kernels::Traits(kv).block_bytes;
            if (bytes > options_.pool_gb * 1e9 / 8) continue;  // the grid has the large ones
            const RandomKv memory(model, kv, shape.NumChunks(Sharing::kOwnChunks), options_.layers);
            AttentionWorkload work(model, memory, shape, Sharing::kOwnChunks);
            const auto [seconds, least] = Time(work, shape, {})[0];
            std::printf("| %s %s | %d | %d | %.1f (%.1f) | %.1f | %.0f%% |\n", model.name,
                        std::string(kernels::Traits(kv).name).c_str(), slots, keys, seconds * 1e6,
                        least * 1e6, bytes / seconds * 1e-9,
                        bytes / seconds / report_.read_bytes_per_s * 100);
            std::fflush(stdout);
          }
        }
      }
    }
  }

  // Beside products of three kinds: those of the same arithmetic, and those that the server runs
  // for a quantised model, of Q4_1 weights and activations of 15 or 8 bits.
  void Prefill() {
    std::printf(
        "\nGFLOP/s, in brackets the best of all rounds.\n\n| prefill | tokens | ms | attention | "
        "own product | of own product | Q4_1, 15 bits | of it | Q4_1, 8 bits | of it | "
        "best of peak |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n");
    OwnProduct f32_product(options_.threads, options_.isa, DType::kF32);
    OwnProduct bf16_product(options_.threads, options_.isa, DType::kBF16);
    OwnProduct q4_1_product(options_.threads, options_.isa, DType::kQ4_1);
    OwnProduct coarse_product(options_.threads, options_.isa, DType::kQ4_1, true);
    for (const AttentionModel& model : kModels) {
      for (const DType kv : options_.kv_types) {
        if (!Wanted("prefill", model, kv)) continue;
        OwnProduct& product = ArithmeticOf(kv) == Arithmetic::kF32 ? f32_product : bf16_product;
        for (const int keys : {512, 2048, 6000}) {
          const BatchShape shape = {.slots = 1, .keys = keys, .rows = keys};
          const RandomKv memory(model, kv, shape.NumChunks(Sharing::kOwnChunks));
          AttentionWorkload work(model, memory, shape, Sharing::kOwnChunks);
          const std::vector<Timing> timings = Time(
              work, shape,
              {[&] { product.Run(); }, [&] { q4_1_product.Run(); }, [&] { coarse_product.Run(); }});
          PrintPrefill(model, kv, keys, timings, work.Flops(), product.Flops());
        }
      }
    }
  }

  // `timings`: attention, then the three products.
  void PrintPrefill(const AttentionModel& model, DType kv, int keys,
                    const std::vector<Timing>& timings, double flops, double product_flops) {
    const double median = flops / timings[0].median_s * 1e-9;
    const double best = flops / timings[0].least_s * 1e-9;
    std::printf("| %s %s | %d | %.1f | %.0f (%.0f) |", model.name,
                std::string(kernels::Traits(kv).name).c_str(), keys, timings[0].median_s * 1e3,
                median, best);
    for (const Timing& product : {timings[1], timings[2], timings[3]}) {
      const double product_median = product_flops / product.median_s * 1e-9;
      const double product_best = product_flops / product.least_s * 1e-9;
      std::printf(" %.0f (%.0f) | %.0f%% (%.0f%%) |", product_median, product_best,
                  100 * median / product_median, 100 * best / product_best);
    }
    const double peak = report_.flops_per_s[static_cast<size_t>(ArithmeticOf(kv))].second;
    std::printf(" %.0f%% |\n", 1e11 * best / peak);
    std::fflush(stdout);
  }

  Options options_;
  cpu::ThreadPool pool_;
  cpu::Isa isa_;
  cpu::AttentionScratch scratch_;
  AttentionContest contest_;
  AttentionReport report_;
  int cases_ = 0;  // of decode and prefill, which the report has not
};

bool ParseSuites(const std::string& text, std::vector<std::string>& out) {
  out = absl::StrSplit(text, ',');
  return std::ranges::all_of(out, [](const std::string& name) {
    return std::ranges::find(kSuites, name) != std::end(kSuites);
  });
}

bool ParseKvTypes(const std::string& text, std::vector<DType>& out) {
  out.clear();
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const size_t known = out.size();
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF8E4M3}) {
      if (name == kernels::Traits(dtype).name) out.push_back(dtype);
    }
    if (out.size() == known) return false;
  }
  return true;
}

bool ParsePrompts(const std::string& text, std::vector<int>& out) {
  out.clear();
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, ','))) {
    // Quarters of a prompt are whole chunks.
    if (!absl::SimpleAtoi(item, &out.emplace_back()) || out.back() <= 0 || out.back() % 256 != 0) {
      return false;
    }
  }
  return true;
}

// Sets the option `flag`; false if there is none, or the value is not one of its.
bool Parse(const std::string& flag, const std::string& value, Options& out) {
  if (flag == "--suite") return ParseSuites(value, out.suites);
  if (flag == "--kv") return ParseKvTypes(value, out.kv_types);
  if (flag == "--prompts") return ParsePrompts(value, out.prompts);
  if (flag == "--pairs") return absl::SimpleAtoi(value, &out.pairs) && out.pairs > 0;
  if (flag == "--pool-gb") return absl::SimpleAtod(value, &out.pool_gb) && out.pool_gb > 0;
  if (flag == "--window")
    return absl::SimpleAtoi(value, &out.window) && out.window > 0 && out.window <= 1 << 20;
  if (flag == "--layers")
    return absl::SimpleAtoi(value, &out.layers) && out.layers > 0 && out.layers <= 16;
  if (flag == "--threads") return absl::SimpleAtoi(value, &out.threads);
  if (flag == "--isa") return !(out.isa = value).empty();
  if (flag == "--filter") return !(out.filter = value).empty();
  if (flag == "--json") return !(out.json = value).empty();
  if (flag == "--csv") return !(out.csv = value).empty();
  return false;
}

int Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a long run is watched
  Options options;
  std::string command = "attention_bench";
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    command += " " + flag;
    if (flag == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (flag == "--reproducible") {
      options.reproducible = true;
    } else if (flag == "--cpu-time") {
      options.clock = Clock::kCpu;
    } else if (i + 1 < argc && Parse(flag, argv[i + 1], options)) {
      command += std::string(" ") + argv[++i];
    } else {
      std::fprintf(stderr, "attention_bench: cannot use %s%s%s (see --help)\n", flag.c_str(),
                   i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "");
      return 2;
    }
  }
  if (const auto isa = cpu::ResolveIsa(options.isa); !isa.ok()) {
    std::fprintf(stderr, "%s\n", isa.status().ToString().c_str());
    return 2;
  }
  return Bench(options).Run(command);
}

}  // namespace
}  // namespace refrain::bench

int main(int argc, char** argv) { return refrain::bench::Main(argc, argv); }
