#include "tools/bench/attention_grid.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "tools/bench/attention_goals.h"

namespace refrain::bench {
namespace {

using kernels::DType;

constexpr int kBatch = 32;

// Than two_phase.
constexpr std::array kOthers = {Method::kNaive, Method::kPaged, Method::kSameIds};

std::string Text(const char* format, double a, double b) {
  char text[64];
  std::snprintf(text, sizeof(text), format, a, b);
  return text;
}

Measurement Describe(const char* suite, const AttentionModel& model, DType kv,
                     const BatchShape& shape, int prompt_tokens) {
  Measurement m;
  m.suite = suite;
  m.model = model.name;
  m.kv = kernels::Traits(kv).name;
  m.batch = shape.slots;
  m.prompt_tokens = prompt_tokens;
  m.shared_tokens = shape.shared_keys;
  m.completion_tokens = shape.keys - prompt_tokens;
  return m;
}

void Record(const ContestResult& result, Measurement m, const AttentionModel& model, DType kv,
            const BatchShape& shape, AttentionReport& report) {
  for (const Method method : kMethods) {
    if (!result.Has(method)) continue;
    const auto& seconds = result.seconds[static_cast<int>(method)];
    m.method = Name(method);
    m.median_s = result.Median(method);
    m.least_s = *std::min_element(seconds.begin(), seconds.end());
    m.most_s = *std::max_element(seconds.begin(), seconds.end());
    m.ideal_s = LeastSeconds(method, result.ceilings, model, kv, shape);
    m.by_two_phase = result.Ratio(method, Method::kTwoPhase).median;
    m.by_two_phase_allowed = m.ideal_s / TwoPhaseLeastSeconds(result.ceilings, model, kv, shape);
    report.measurements.push_back(m);
  }
}

// Prints one line of the grid, "-" for a method that was left out.
void PrintGridLine(const ContestResult& result, const AttentionModel& model, DType kv,
                   const BatchShape& shape, const std::vector<Goal>& goals) {
  const auto ideal_s = [&](Method method) {
    return LeastSeconds(method, result.ceilings, model, kv, shape);
  };
  const auto ms = [&](Method method) {
    return result.Has(method) ? Text("%.2f", result.Median(method) * 1e3, 0) : std::string("-");
  };
  const auto ratio = [&](Method method) {
    return result.Has(method) ? Text("%.2f (%.2f)", result.Ratio(method, Method::kTwoPhase).median,
                                     ideal_s(method) / ideal_s(Method::kTwoPhase))
                              : std::string("-");
  };
  const auto share = [&](Method method) {
    return result.Has(method) ? Text("%.0f%%", 100 * ideal_s(method) / result.Median(method), 0)
                              : std::string("-");
  };
  std::printf(
      "| %d | %d | %.1f, %.0f | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", shape.keys,
      shape.shared_keys, result.ceilings.read_bytes_per_s * 1e-9,
      result.ceilings.flops_per_s * 1e-9, ms(Method::kNaive).c_str(), ms(Method::kPaged).c_str(),
      ms(Method::kSameIds).c_str(), ms(Method::kTwoPhase).c_str(), share(Method::kPaged).c_str(),
      ratio(Method::kNaive).c_str(), ratio(Method::kPaged).c_str(), ratio(Method::kSameIds).c_str(),
      share(Method::kTwoPhase).c_str(), ToText(goals).c_str());
  std::fflush(stdout);
}

// The largest pool that `options` allow for `shapes`, and whether it has room for chunks of every
// sequence's own.
std::unique_ptr<RandomKv> PoolFor(const GridOptions& options, const AttentionModel& model, DType kv,
                                  std::span<const BatchShape> shapes) {
  const double chunk_bytes =
      static_cast<double>(model.KvElements()) * kBenchChunkTokens * kernels::Traits(kv).block_bytes;
  int64_t chunks = 0;
  for (const BatchShape& shape : shapes) {
    const int64_t own = shape.NumChunks(Sharing::kOwnChunks);
    const bool fits = static_cast<double>(own) * chunk_bytes <= options.pool_bytes_max;
    chunks = std::max(chunks, fits ? own : shape.NumChunks(Sharing::kRun));
  }
  return std::make_unique<RandomKv>(model, kv, chunks);
}

// The cases of a curve: those of one n_s share a pool.
struct Curve {
  const char* suite;
  AttentionModel model;
  DType kv;
  int prompt_tokens;
};

std::vector<ContestResult> RunCurve(AttentionContest& contest, const GridOptions& options,
                                    const Curve& curve, std::span<const BatchShape> shapes) {
  const auto pool = PoolFor(options, curve.model, curve.kv, shapes);
  std::vector<ContestResult> results;
  for (const BatchShape& shape : shapes) {
    ContestOptions contest_options;
    contest_options.reproducible = options.reproducible;
    contest_options.own_chunks = shape.NumChunks(Sharing::kOwnChunks) <= pool->num_chunks();
    contest_options.min_rounds = 3;
    contest_options.min_seconds = 0.1;
    results.push_back(contest.Run(curve.model, *pool, shape, contest_options));
  }
  return results;
}

void PrintCurveHead(const char* first_column, const AttentionModel& model, DType kv, int shared) {
  std::printf("\n%s, %s, n_s = %d; thousands of tokens per second of this one layer\n\n",
              model.name, std::string(kernels::Traits(kv).name).c_str(), shared);
  std::printf("| %s |", first_column);
  for (const Method method : kMethods) std::printf(" %s |", std::string(Name(method)).c_str());
  for (const Method method : kOthers) {
    std::printf(" two_phase / %s |", std::string(Name(method)).c_str());
  }
  std::printf("\n|---|---|---|---|---|---|---|---|\n");
}

// Rates, then how many times theirs two_phase's is, beside what the ceilings allow.
void PrintCurveLine(int x, std::span<const Measurement> measurements) {
  const auto print = [&](Method method, const auto& text) {
    const auto found = std::find_if(measurements.begin(), measurements.end(),
                                    [&](const Measurement& m) { return m.method == Name(method); });
    std::printf(" %s |", found == measurements.end() ? "-" : text(*found).c_str());
  };
  std::printf("| %d |", x);
  for (const Method method : kMethods) {
    print(method, [](const Measurement& m) { return Text("%.2f", m.tokens_per_s * 1e-3, 0); });
  }
  for (const Method method : kOthers) {
    print(method, [](const Measurement& m) {
      return Text("%.2f (%.2f)", m.by_two_phase, m.by_two_phase_allowed);
    });
  }
  std::printf("\n");
  std::fflush(stdout);
}

bool Wanted(const GridOptions& options, const std::string& title) {
  return title.find(options.filter) != std::string::npos;
}

std::string Title(const char* suite, const AttentionModel& model, DType kv) {
  return std::string(suite) + " " + model.name + " " + std::string(kernels::Traits(kv).name);
}

}  // namespace

void RunAttentionGrid(AttentionContest& contest, const GridOptions& options,
                      AttentionReport& report) {
  for (const DType kv : options.kv_types) {
    for (const AttentionModel& model : options.models) {
      if (!Wanted(options, Title("grid", model, kv))) continue;
      std::printf(
          "\n%s, %s KV, b = %d, c = %d. Milliseconds; in brackets: the ratio of what the "
          "ceilings allow.\n\n",
          model.name, std::string(kernels::Traits(kv).name).c_str(), kBatch, kBenchChunkTokens);
      std::printf(
          "| n_p | n_s | GB/s, GFLOP/s | naive | paged | paged_shared | two_phase | paged of "
          "ceiling | naive "
          "/ two_phase | paged / two_phase | paged_shared / two_phase | two_phase of ceiling "
          "| goal |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
      std::vector<BatchShape> wholes;
      for (const int prompt : options.prompts) wholes.push_back({.slots = kBatch, .keys = prompt});
      const auto pool = PoolFor(options, model, kv, wholes);
      for (const BatchShape& whole : wholes) {
        const int prompt = whole.keys;
        for (const int quarters : {0, 2, 3, 4}) {
          BatchShape shape = whole;
          shape.shared_keys = prompt * quarters / 4;
          ContestOptions contest_options;
          contest_options.reproducible = options.reproducible;
          contest_options.own_chunks = whole.NumChunks(Sharing::kOwnChunks) <= pool->num_chunks();
          contest_options.min_rounds = quarters == 0 ? options.pairs : 5;
          contest_options.min_seconds = 0.3;
          const ContestResult result = contest.Run(model, *pool, shape, contest_options);
          const std::vector<Goal> goals = JudgeGoals(result, model, kv, shape);
          PrintGridLine(result, model, kv, shape, goals);
          Record(result, Describe("grid", model, kv, shape, prompt), model, kv, shape, report);
          report.measurements.back().goals = ToText(goals);  // two_phase is the last method
          report.missed |= std::ranges::any_of(
              goals, [](const Goal& goal) { return goal.verdict == Verdict::kMissed; });
        }
      }
    }
  }
}

void RunCompletionCurve(AttentionContest& contest, const GridOptions& options,
                        AttentionReport& report) {
  constexpr int kCompletions[] = {1, 64, 256, 512, 1024, 2048};
  const AttentionModel& model = options.models.front();
  const DType kv = options.kv_types.front();
  if (!Wanted(options, Title("completion", model, kv))) return;
  for (const int shared : options.prompts) {
    std::vector<BatchShape> shapes;
    for (const int completion : kCompletions) {
      shapes.push_back({.slots = kBatch, .keys = shared + completion, .shared_keys = shared});
    }
    const auto results = RunCurve(contest, options, {"completion", model, kv, shared}, shapes);
    PrintCurveHead("n_c", model, kv, shared);
    // Seconds of all steps so far, and the least, by the trapezoid between the lengths that were
    // timed.
    std::array<double, kMethods.size()> total{}, least{};
    for (size_t i = 0; i < shapes.size(); ++i) {
      const size_t first = report.measurements.size();
      Record(results[i], Describe("completion", model, kv, shapes[i], shared), model, kv, shapes[i],
             report);
      const int steps = i == 0 ? 1 : kCompletions[i] - kCompletions[i - 1];
      const size_t before = i == 0 ? 0 : i - 1;
      for (const Method method : kMethods) {
        if (!results[i].Has(method)) continue;
        const auto ideal_s = [&](size_t at) {
          return LeastSeconds(method, results[at].ceilings, model, kv, shapes[at]);
        };
        const auto m = static_cast<int>(method);
        total[m] += steps * (results[before].Median(method) + results[i].Median(method)) / 2;
        least[m] += steps * (ideal_s(before) + ideal_s(i)) / 2;
      }
      constexpr auto kTwoPhase = static_cast<int>(Method::kTwoPhase);
      for (Measurement& m : std::span(report.measurements).subspan(first)) {
        const auto at = std::ranges::find_if(
                            kMethods, [&](Method method) { return m.method == Name(method); }) -
                        kMethods.begin();
        m.tokens_per_s = double{kBatch} * kCompletions[i] / total[at];
        m.by_two_phase = total[at] / total[kTwoPhase];
        m.by_two_phase_allowed = least[at] / least[kTwoPhase];
      }
      PrintCurveLine(kCompletions[i], std::span(report.measurements).subspan(first));
    }
  }
}

void RunBatchCurve(AttentionContest& contest, const GridOptions& options, AttentionReport& report) {
  constexpr int kBatches[] = {1, 4, 8, 16, 32, 64, 96};
  constexpr int kCompletion = 32;  // the middle of 64 completion tokens
  const AttentionModel& model = options.models.front();
  const DType kv = options.kv_types.front();
  if (!Wanted(options, Title("batch", model, kv))) return;
  for (const int shared : options.prompts) {
    std::vector<BatchShape> shapes;
    for (const int batch : kBatches) {
      shapes.push_back({.slots = batch, .keys = shared + kCompletion, .shared_keys = shared});
    }
    const auto results = RunCurve(contest, options, {"batch", model, kv, shared}, shapes);
    PrintCurveHead("batch", model, kv, shared);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const size_t first = report.measurements.size();
      Record(results[i], Describe("batch", model, kv, shapes[i], shared), model, kv, shapes[i],
             report);
      for (size_t j = first; j < report.measurements.size(); ++j) {
        report.measurements[j].tokens_per_s = kBatches[i] / report.measurements[j].median_s;
      }
      PrintCurveLine(kBatches[i], std::span(report.measurements).subspan(first));
    }
  }
}

}  // namespace refrain::bench
