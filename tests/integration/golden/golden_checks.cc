#include "tests/integration/golden/golden_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "engine/sampler.h"
#include "engine/text/create_tokenizer.h"
#include "kernels/cpu/isa.h"
#include "kernels/worse.h"

namespace refrain::testing {
namespace {

using engine::LogSumExp;
using engine::TokenId;
using nlohmann::json;

json Golden(const std::string& name, const std::string& list = "cases") {
  std::ifstream file("tests/data/smollm2-golden/" + name);
  return json::parse(file).at(list);
}

double Logprob(std::span<const float> logits, int32_t id) { return logits[id] - LogSumExp(logits); }

}  // namespace

std::string BestIsa() { return std::string(kernels::cpu::Name(kernels::cpu::DetectIsa())); }

std::unique_ptr<ModelHarness> LoadSmolLm2(const std::string& compute_dtype,
                                          const std::string& kv_dtype) {
  HarnessOptions options;
  options.backend.compute_dtype = compute_dtype;
  options.backend.isa = BestIsa();
  options.kv_dtype = kv_dtype;
  auto harness = ModelHarness::Load(SmolLm2Path(), options);
  if (!harness.ok()) throw std::runtime_error(harness.status().ToString());
  return *std::move(harness);
}

std::vector<GreedyCase> GreedyCases() {
  std::vector<GreedyCase> cases;
  for (const json& c : Golden("greedy.json")) {
    cases.push_back({c["prompt_ids"], c["tokens"], c["logprobs"]});
  }
  return cases;
}

std::vector<int32_t> LogitsPrompt(const std::string& name) {
  for (const json& c : Golden("logits.json")) {
    if (c["name"] == name) return c["ids"];
  }
  throw std::runtime_error("logits.json has no prompt " + name);
}

std::vector<TopError> MeasureTop20(ModelHarness& harness) {
  std::vector<TopError> errors;
  const json cases = Golden("logits.json");
  for (const json& c : cases) {
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    TopError error{c["name"], static_cast<int32_t>(ids.size())};
    harness.Start(ids, error.prompt_tokens - 1, [&](int32_t, std::span<const float> logits) {
      const double norm = LogSumExp(logits);
      for (size_t i = 0; i < c["top_ids"].size(); ++i) {
        const double ours = logits[c["top_ids"][i].get<int32_t>()] - norm;
        const double off = std::abs(ours - c["top_logprobs"][i].get<double>());
        error.max_abs = kernels::Worse(error.max_abs, off);
        error.mean_abs += off / c["top_ids"].size();
      }
    });
    errors.push_back(error);
  }
  return errors;
}

EchoError MeasureEcho(ModelHarness& harness) {
  EchoError error;
  double sum = 0;
  const json cases = Golden("logits.json");
  for (const json& c : cases) {
    if (!c.contains("echo_logprobs")) continue;
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    harness.Start(ids, 0, [&](int32_t index, std::span<const float> logits) {
      if (index + 1 >= static_cast<int32_t>(ids.size())) return;
      const double off =
          std::abs(Logprob(logits, ids[index + 1]) - c["echo_logprobs"][index + 1].get<double>());
      error.max_abs = kernels::Worse(error.max_abs, off);
      sum += off;
      ++error.compared;
    });
  }
  error.mean_abs = sum / std::max(error.compared, 1);
  return error;
}

GreedyErrors MeasureGreedy(ModelHarness& harness, double least_margin) {
  GreedyErrors result;
  const json cases = Golden("greedy.json");
  for (const json& c : cases) {
    if (result.steps >= PartInThisBuild(1024)) break;
    const auto prompt = c["prompt_ids"].get<std::vector<int32_t>>();
    const auto golden = c["tokens"].get<std::vector<int32_t>>();
    const auto margins = c["margins"].get<std::vector<double>>();
    const auto logprobs = c["logprobs"].get<std::vector<double>>();
    const int32_t last = static_cast<int32_t>(prompt.size()) - 1;
    double sum = 0;
    bool free_running = true;
    const auto compare = [&](int32_t index, std::span<const float> logits) {
      const int32_t step = index - last;
      const int32_t token = golden[step];
      const auto best = static_cast<int32_t>(engine::ArgMax(logits));
      const double deficit = best < 0 ? NAN : logits[best] - logits[token];  // none is finite
      result.largest_deficit = kernels::Worse(result.largest_deficit, deficit);
      if (best != token) {
        ++result.argmax_flips;
        result.largest_margin_flipped = std::max(result.largest_margin_flipped, margins[step]);
      }
      free_running &= margins[step] >= least_margin;
      if (free_running) {
        ++result.free_compared;
        result.free_different += best != token;
        free_running = best == token;
      }
      sum += std::abs(Logprob(logits, token) - logprobs[step]);
      ++result.steps;
    };
    harness.Start(prompt, last, compare);
    std::span<const int32_t> left(golden.data(), golden.size() - 1);
    for (size_t turn = 0; !left.empty(); ++turn) {
      constexpr size_t kAtATime[] = {1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1, 7, 1, 8, 16};
      const size_t count = std::min(left.size(), kAtATime[turn % std::size(kAtATime)]);
      harness.Append(left.first(count), 0, compare);
      left = left.subspan(count);
    }
    result.worst_prompt_mean_abs =
        kernels::Worse(result.worst_prompt_mean_abs, sum / golden.size());
  }
  return result;
}

std::vector<double> GreedyLogprobs(ModelHarness& harness) {
  std::vector<double> logprobs;
  for (const GreedyCase& one : GreedyCases()) {
    if (std::ssize(logprobs) >= PartInThisBuild(1024)) break;
    std::vector<int32_t> ids = one.prompt;
    ids.insert(ids.end(), one.tokens.begin(), one.tokens.end() - 1);
    const auto last = static_cast<int32_t>(one.prompt.size()) - 1;
    harness.Start(ids, last, [&](int32_t index, std::span<const float> logits) {
      logprobs.push_back(Logprob(logits, one.tokens[static_cast<size_t>(index - last)]));
    });
  }
  return logprobs;
}

bool ComparesAll() {
  const char* asked = std::getenv("REFRAIN_GOLDEN_WINDOWS");
  return asked != nullptr && std::string_view(asked) == "all";
}

std::vector<GoldenWindows> WindowsToCompare(bool also_long) {
  std::vector<GoldenWindows> windows = {{512, 32}};
  if (also_long || ComparesAll()) {
    windows.push_back({2048, 8});
  } else {
    std::printf("8 windows of 2048: left to tools/test --goldens\n");
  }
  return windows;
}

WindowError MeasurePerplexity(ModelHarness& harness, int32_t window, int32_t max_windows,
                              Predicted predicted) {
  std::ifstream file("tests/data/text-wikitext2/valid_head.txt");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  auto tokenizer_source = harness.source().ReadTokenizer();
  if (!tokenizer_source.ok()) throw std::runtime_error(tokenizer_source.status().ToString());
  auto tokenizer = engine::CreateTokenizer(tokenizer_source->spec);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
  const auto encoded = (*tokenizer)->Encode(text, {.parse_special = true, .add_bos = false});
  std::vector<int32_t> ids;
  for (const TokenId id : *encoded) ids.push_back(static_cast<int32_t>(id));

  WindowError error;
  const json results = Golden("perplexity.json", "results");
  for (const json& result : results) {
    if (result["window"] != window) continue;
    for (const json& reference : result["per_window"]) {
      if (error.windows == max_windows) break;
      const int32_t start = reference["start"];
      if (start + window > static_cast<int32_t>(ids.size())) break;
      const std::span<const int32_t> part(ids.data() + start, window);
      const auto first_ids = reference["first_ids"].get<std::vector<int32_t>>();
      if (!std::equal(first_ids.begin(), first_ids.end(), part.begin())) {
        throw std::runtime_error("the text is not tokenised as the reference's");
      }
      const bool all = predicted == Predicted::kAll;
      const int32_t first = all ? 0 : window / 2;
      double nll = 0;
      harness.Start(part, first, [&](int32_t index, std::span<const float> logits) {
        if (index + 1 < window) nll -= Logprob(logits, part[index + 1]) / (window - 1 - first);
      });
      const double expected = reference[all ? "nll_mean" : "nll_mean_second_half"];
      error.nll_mean += nll;
      error.reference_mean += expected;
      error.worst_window_error = kernels::Worse(error.worst_window_error, std::abs(nll - expected));
      ++error.windows;
    }
  }
  error.nll_mean /= std::max(error.windows, 1);
  error.reference_mean /= std::max(error.windows, 1);
  return error;
}

}  // namespace refrain::testing
