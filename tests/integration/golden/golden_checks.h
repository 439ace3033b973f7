#ifndef REFRAIN_TESTS_INTEGRATION_GOLDEN_GOLDEN_CHECKS_H_
#define REFRAIN_TESTS_INTEGRATION_GOLDEN_GOLDEN_CHECKS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/model_harness.h"
#include "tests/support/slow_build.h"

// Measurements of a model against tests/data/smollm2-golden. They measure; the tests assert, each
// with the limits that the README beside the data gives for its arithmetic.

namespace refrain::testing {

// The name of this machine's best instruction-set level; "auto" may take a faster one below.
std::string BestIsa();

// SmolLM2 at that level. Throws std::runtime_error where it cannot be loaded.
std::unique_ptr<ModelHarness> LoadSmolLm2(const std::string& compute_dtype,
                                          const std::string& kv_dtype);

struct GreedyCase {
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;   // the 64 that follow
  std::vector<double> logprobs;  // of these
};
std::vector<GreedyCase> GreedyCases();

// The tokens of one prompt of logits.json.
std::vector<int32_t> LogitsPrompt(const std::string& name);

struct TopError {
  std::string prompt;
  int32_t prompt_tokens = 0;
  double max_abs = 0;  // of the 20 best tokens' log-probabilities
  double mean_abs = 0;
};
std::vector<TopError> MeasureTop20(ModelHarness& harness);

struct EchoError {
  double mean_abs = 0;
  double max_abs = 0;
  int32_t compared = 0;
};
EchoError MeasureEcho(ModelHarness& harness);

// What is computed of the golden values in a slow build, an eighth of them: a sanitizer looks at
// memory, not at figures, and all of them take it an hour.
constexpr int32_t PartInThisBuild(int32_t all) {
  return kSlowBuildFactor == 1 ? all : std::max(all / 8, 1);
}

// The golden greedy tokens, PartInThisBuild(1024) of them; every step is compared. They are fed
// one, a few or sixteen at a time, so that the kernels for one row, for few and for many all take
// part.
struct GreedyErrors {
  int32_t steps = 0;
  int32_t argmax_flips = 0;
  double largest_margin_flipped = 0;
  double worst_prompt_mean_abs = 0;  // of the golden token's log-probability
  double largest_deficit = 0;        // max logit - logit of the golden token
  // What the model would have said by itself: up to its first token that is not the golden one, it
  // has been fed its own. Each prompt is compared up to the first golden margin below
  // `least_margin`.
  int32_t free_compared = 0;
  int32_t free_different = 0;
};
GreedyErrors MeasureGreedy(ModelHarness& harness, double least_margin);

// The log-probabilities of the same tokens, prompt by prompt, each prompt in one go.
std::vector<double> GreedyLogprobs(ModelHarness& harness);

// Whether everything is to be compared: tools/test --goldens.
bool ComparesAll();

// The windows of one length in a text, which is the same for both lengths.
struct GoldenWindows {
  int32_t tokens;
  int32_t count;
};
// What a setting is compared on, but for PartInThisBuild: all 32 windows of 512 tokens and, with
// `also_long`, all 8 of 2,048: what others are measured by, and what is served. `tools/test
// --goldens` compares both for every setting; that a length is left to it is printed.
std::vector<GoldenWindows> WindowsToCompare(bool also_long);

struct WindowError {
  int32_t windows = 0;
  double nll_mean = 0;
  double reference_mean = 0;      // over the same windows
  double worst_window_error = 0;  // |nll - reference| of one window
};
// Which tokens of a window are predicted. In the second case nothing is asked of the first half,
// so that it is context as a prompt is.
enum class Predicted : uint8_t { kAll, kSecondHalf };
// The first `max_windows` windows of `window` tokens of the WikiText-2 text.
WindowError MeasurePerplexity(ModelHarness& harness, int32_t window, int32_t max_windows,
                              Predicted predicted = Predicted::kAll);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_INTEGRATION_GOLDEN_GOLDEN_CHECKS_H_
