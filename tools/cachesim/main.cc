// Replays traces of prompts against the KV cache without a model, and prints the hit rate of each
// eviction policy beside an oracle's. docs/cachesim.md explains.

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tools/cachesim/simulator.h"
#include "tools/cachesim/trace.h"
#include "tools/result_file.h"

namespace refrain::cachesim {
namespace {

constexpr char kHelp[] =
    R"(cachesim [OPTIONS] TRACE...   hit rates of KV cache eviction policies, without a model

TRACE is a file of JSON lines, plain or gzipped: Mooncake's conversation format (one request a line)
or agentic sessions (one session a line). docs/cachesim.md describes both.

  --policies=LIST      of kv_cache.eviction's values and "oracle"  [lru,s3fifo,reuse_rate,oracle]
  --sizes=LIST         of the cache, in percent of the trace's distinct tokens           [1,5,25]
  --session-gap-s=N    sessions without a start time begin N seconds after one another        [0]
  --served-tokens-per-s=N  so many are computed in a second, and requests wait; 0: none waits [0]
  --await=on|off       whether what waiting requests match is evicted last                   [on]
  --answers=on|off     whether the policy is told how answers ended                          [on]
  --json=FILE          also writes the results there ("-": to standard output, without the table)
  --help               this text

Exit status: 0, or 2 when an option, a file or a line of it cannot be used.
)";

struct Options {
  std::vector<std::string> policies = {"lru", "s3fifo", "reuse_rate", kOracle};
  std::vector<double> sizes_percent = {1, 5, 25};
  TraceOptions trace;
  SimulationOptions simulation;
  std::string json_path;
  std::vector<std::string> traces;
};

// Sets what `argument` says; false if it cannot be used.
bool Parse(std::string_view argument, Options* options) {
  if (!absl::StartsWith(std::string(argument), "--")) {
    options->traces.emplace_back(argument);
    return true;
  }
  const size_t equals = argument.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = argument.substr(0, equals);
  const std::string value(argument.substr(equals + 1));
  if (value.empty()) return false;
  if (name == "--policies") {
    options->policies = absl::StrSplit(value, ',');
    return true;
  }
  if (name == "--sizes") {
    options->sizes_percent.clear();
    for (const std::string& item : std::vector<std::string>(absl::StrSplit(value, ','))) {
      double percent = 0;
      if (!absl::SimpleAtod(item, &percent) || !(percent > 0 && percent <= 100)) return false;
      options->sizes_percent.push_back(percent);
    }
    return true;
  }
  if (name == "--session-gap-s") {
    double& gap = options->trace.session_gap_s;
    return absl::SimpleAtod(value, &gap) && gap >= 0 && gap <= 1e6;
  }
  if (name == "--served-tokens-per-s") {
    double& rate = options->simulation.served_tokens_per_s;
    return absl::SimpleAtod(value, &rate) && rate >= 0 && rate <= 1e9;
  }
  if (name == "--await" || name == "--answers") {
    SimulationOptions& simulation = options->simulation;
    (name == "--await" ? simulation.await : simulation.answers) = value == "on";
    return value == "on" || value == "off";
  }
  if (name == "--json") {
    options->json_path = value;
    return true;
  }
  return false;
}

// Results of one trace and size, in the order of the policies.
struct Row {
  double size_percent = 0;
  int32_t cache_blocks = 0;
  std::vector<SimulationResult> results;
};

const SimulationResult* Find(const Options& options, const Row& row, std::string_view policy) {
  for (size_t i = 0; i < options.policies.size(); ++i) {
    if (options.policies[i] == policy) return &row.results[i];
  }
  return nullptr;
}

void PrintRow(const Options& options, const Row& row) {
  const SimulationResult* lru = Find(options, row, "lru");
  const SimulationResult* oracle = Find(options, row, kOracle);
  for (size_t i = 0; i < row.results.size(); ++i) {
    const SimulationResult& result = row.results[i];
    std::printf("| %g %% | %d | %s | %.4f |", row.size_percent, row.cache_blocks,
                options.policies[i].c_str(), result.hit_rate());
    if (oracle != nullptr && oracle->hit_tokens > 0) {
      std::printf(" %.3f |", result.hit_rate() / oracle->hit_rate());
    } else {
      std::printf(" |");
    }
    if (oracle != nullptr && lru != nullptr && oracle->hit_tokens > lru->hit_tokens) {
      std::printf(" %.2f |", static_cast<double>(result.hit_tokens - lru->hit_tokens) /
                                 static_cast<double>(oracle->hit_tokens - lru->hit_tokens));
    } else {
      std::printf(" |");
    }
    std::printf(" %.2f |", result.evicted_blocks == 0
                               ? 0.0
                               : 1e6 * result.seconds / static_cast<double>(result.evicted_blocks));
    if (options.simulation.served_tokens_per_s > 0) std::printf(" %.1f |", result.mean_queued);
    std::printf("\n");
  }
}

nlohmann::json ToJson(const Options& options, const Row& row) {
  nlohmann::json policies = nlohmann::json::object();
  for (size_t i = 0; i < row.results.size(); ++i) {
    const SimulationResult& result = row.results[i];
    policies[options.policies[i]] = {{"hit_rate", result.hit_rate()},
                                     {"hit_tokens", result.hit_tokens},
                                     {"evicted_blocks", result.evicted_blocks},
                                     {"seconds", result.seconds},
                                     {"mean_queued", result.mean_queued}};
  }
  return {{"size_percent", row.size_percent},
          {"cache_blocks", row.cache_blocks},
          {"policies", std::move(policies)}};
}

absl::StatusOr<nlohmann::json> RunTrace(const Options& options, const std::string& path,
                                        bool table) {
  const absl::StatusOr<Trace> trace = ReadTrace(path, options.trace);
  if (!trace.ok()) return trace.status();
  if (table) {
    std::printf("\n%s: %zu requests, %lld prompt tokens; %d distinct blocks of %d, %lld tokens\n\n",
                path.c_str(), trace->requests.size(), static_cast<long long>(trace->prompt_tokens),
                trace->distinct_blocks, trace->block_tokens,
                static_cast<long long>(trace->distinct_tokens));
    const bool queues = options.simulation.served_tokens_per_s > 0;
    std::printf(
        "| cache | blocks | policy | hit rate | of the oracle's | of LRU's gap to it closed "
        "| us per eviction |%s\n|---|---|---|---|---|---|---|%s\n",
        queues ? " waiting, mean |" : "", queues ? "---|" : "");
  }
  nlohmann::json sizes = nlohmann::json::array();
  for (const double percent : options.sizes_percent) {
    Row row{.size_percent = percent};
    const double tokens = static_cast<double>(trace->distinct_tokens) * percent / 100;
    row.cache_blocks = std::max(1, static_cast<int32_t>(tokens / trace->block_tokens));
    SimulationOptions simulation = options.simulation;
    simulation.cache_blocks = row.cache_blocks;
    for (const std::string& policy : options.policies) {
      const auto result = Simulate(*trace, policy, simulation);
      if (!result.ok()) return result.status();
      row.results.push_back(*result);
    }
    if (table) PrintRow(options, row);
    std::fflush(stdout);
    sizes.push_back(ToJson(options, row));
  }
  return nlohmann::json{{"trace", path},
                        {"requests", trace->requests.size()},
                        {"prompt_tokens", trace->prompt_tokens},
                        {"block_tokens", trace->block_tokens},
                        {"distinct_blocks", trace->distinct_blocks},
                        {"distinct_tokens", trace->distinct_tokens},
                        {"sizes", std::move(sizes)}};
}

int Complain(const absl::Status& status) {
  std::fprintf(stderr, "cachesim: %s\n", std::string(status.message()).c_str());
  return 2;
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--help") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (!Parse(argv[i], &options)) {
      std::fprintf(stderr, "cachesim: cannot use %s (see --help)\n", argv[i]);
      return 2;
    }
  }
  if (options.traces.empty()) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  const absl::Status writable = CheckResultFile(options.json_path);
  if (!writable.ok()) return Complain(writable);
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& path : options.traces) {
    auto result = RunTrace(options, path, options.json_path != "-");
    if (!result.ok()) return Complain(result.status());
    all.push_back(*std::move(result));
  }
  // A path need not be UTF-8. Written out before the file is opened, which empties it.
  const std::string text = all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  if (options.json_path == "-") {
    std::printf("%s\n", text.c_str());
  } else if (!options.json_path.empty()) {
    std::ofstream out(options.json_path);
    out << text << '\n';
    if (!out.flush()) {
      std::fprintf(stderr, "cachesim: cannot write %s\n", options.json_path.c_str());
      return 2;
    }
  }
  const absl::Status printed = FlushStandardOutput();
  return printed.ok() ? 0 : Complain(printed);
}

}  // namespace
}  // namespace refrain::cachesim

int main(int argc, char** argv) { return refrain::cachesim::Main(argc, argv); }
