// How much a 1 MB prompt, tokenised meanwhile, delays the tokens of 32 running streams.
//
//   encode_gap [MODEL] [SECONDS]
//
// 32 streams decode; the gaps between the tokens of each stream are taken in turns: some steps
// undisturbed, then while a prompt of 1 MB is tokenised, as /tokenize does. What else the machine
// does falls on both alike. Streams last kRound, and are started anew until SECONDS have been
// measured. The first ones are not measured, so that the memory of the KV chunks was touched: all
// of them take a new chunk in the same step, and waiting for its pages would be the p99. Prints the
// quantiles of both, the growth of the p99 with the interval that 95 % of resampled steps give, and
// how long a prompt took. Exit status: 0; 1 beyond 5 ms, or when the prompts or the streams gave no
// tokens; 2 without a model.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "tests/support/model_harness.h"

namespace refrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStreams = 32;
constexpr int kTokens = 1500;
constexpr std::chrono::milliseconds kQuiet{300};
constexpr std::chrono::seconds kRound{40};  // less than kTokens steps
constexpr double kLimitMs = 5.0;

std::string LongText() {
  const char* words[] = {"river ", "a ", "42", "Quantum, ", "house\n", "running ", "été ", "x=y; "};
  std::string text;
  for (uint32_t state = 1; text.size() < (1 << 20);) {
    state = state * 1664525u + 1013904223u;
    text += words[state >> 29];
    // Every fourth word is none of the vocabulary's.
    if ((state >> 27) % 4 != 0) continue;
    for (uint32_t letters = state; letters > 100; letters /= 32) {
      text.push_back(static_cast<char>('a' + letters % 26));
    }
    text.push_back(' ');
  }
  return text;
}

struct Gaps {
  std::vector<double> quiet_ms, loud_ms;
};

void Append(const Gaps& from, Gaps& to) {
  to.quiet_ms.insert(to.quiet_ms.end(), from.quiet_ms.begin(), from.quiet_ms.end());
  to.loud_ms.insert(to.loud_ms.end(), from.loud_ms.begin(), from.loud_ms.end());
}

void Consume(engine::TokenStream& stream, const std::atomic<int>& phase, Gaps& gaps) {
  Clock::time_point last{};
  for (;;) {
    stream.WaitUntil(Clock::now() + std::chrono::seconds(30));
    const engine::StreamBatch batch = stream.Read();
    const auto now = Clock::now();
    if (!batch.tokens.empty()) {
      const double ms = std::chrono::duration<double, std::milli>(now - last).count();
      if (last != Clock::time_point{} && phase == 1) gaps.quiet_ms.push_back(ms);
      if (last != Clock::time_point{} && phase == 2) gaps.loud_ms.push_back(ms);
      last = now;
    }
    if (batch.finished || phase == 3) return;
  }
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[static_cast<size_t>(q * (values.size() - 1))];
}

// 32 streams, from the constructor to Stop.
class Streams {
 public:
  explicit Streams(engine::Engine& engine) : gaps_(kStreams) {
    for (int i = 0; i < kStreams; ++i) {
      engine::Request request;
      request.prompt = engine::TextPrompt{"Tell a story about number " + std::to_string(i) + ":"};
      request.stop.max_tokens = kTokens;
      request.stop.ignore_eos = true;
      consumers_.emplace_back(
          [this, i, stream = *engine.Submit(request)] { Consume(*stream, phase, gaps_[i]); });
    }
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }

  // Of all streams, and of the first: one gap a step.
  std::pair<Gaps, Gaps> Stop() {
    phase = 3;
    for (std::thread& consumer : consumers_) consumer.join();
    Gaps all;
    for (const Gaps& gaps : gaps_) Append(gaps, all);
    return {all, gaps_[0]};
  }

  std::atomic<int> phase{0};

 private:
  std::vector<Gaps> gaps_;
  std::vector<std::thread> consumers_;
};

std::vector<double> Resampled(const std::vector<double>& values, std::mt19937& random) {
  std::vector<double> drawn;
  for (size_t i = 0; i < values.size(); ++i) drawn.push_back(values[random() % values.size()]);
  return drawn;
}

// Of the growth of the p99, from the steps of one stream: its 2.5 % and 97.5 % quantiles.
std::pair<double, double> IntervalOfGrowth(const Gaps& steps) {
  std::mt19937 random(1);
  std::vector<double> growths;
  for (int draw = 0; draw < 1000; ++draw) {
    growths.push_back(Quantile(Resampled(steps.loud_ms, random), 0.99) -
                      Quantile(Resampled(steps.quiet_ms, random), 0.99));
  }
  return {Quantile(growths, 0.025), Quantile(growths, 0.975)};
}

struct Tokenised {
  int prompts = 0;
  double seconds = 0;
};

// Whether the text has tokens; tells why not.
bool Tokenises(engine::Engine& engine, const std::string& text) {
  // As a prompt it would be refused before it is tokenised: it cannot fit.
  auto stream = engine.Tokenize(engine::TextPrompt{text}, "", std::nullopt, std::nullopt);
  absl::Status status = stream.status();
  size_t tokens = 0;
  if (stream.ok()) {
    engine::StreamBatch batch;
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (!batch.finished && (*stream)->WaitUntil(deadline)) {
      batch = (*stream)->Read();
      tokens += batch.text_ids.size();
    }
    status = batch.finished ? batch.status : absl::DeadlineExceededError("no end within 60 s");
  }
  if (status.ok() && tokens > 0) return true;
  std::fprintf(stderr, "encode_gap: %zu tokens: %s\n", tokens, status.ToString().c_str());
  return false;
}

// For so long, in turns: no prompt for a while, then one. Nothing when one had no tokens.
std::optional<Tokenised> TokeniseNowAndThen(engine::Engine& engine, Streams& streams,
                                            const std::string& text,
                                            std::chrono::seconds duration) {
  Tokenised done;
  std::chrono::milliseconds last{0};  // as long is the time without: contexts grow
  for (const auto end = Clock::now() + duration; Clock::now() < end; ++done.prompts) {
    streams.phase = 1;
    std::this_thread::sleep_for(std::max(kQuiet, last));
    streams.phase = 2;
    const auto start = Clock::now();
    if (!Tokenises(engine, text)) return std::nullopt;
    last = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    done.seconds += std::chrono::duration<double>(last).count();
  }
  return done;
}

int Main(const std::string& path, std::chrono::seconds total) {
  engine::EngineOptions options;
  options.model.path = path;
  options.kv_cache.prefix_cache = false;  // the chunks of the first run are those of the others
  auto made = engine::CreateEngine(options);
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
    return 2;
  }
  engine::Engine& engine = **made;
  const std::chrono::seconds round = std::min(total, kRound);
  {
    Streams before(engine);
    std::this_thread::sleep_for(round + std::chrono::seconds(15));
    before.Stop();
  }
  const std::string text = LongText();
  Tokenised tokenised;
  Gaps all, steps;  // of all streams, and of the first ones: one gap a step
  for (std::chrono::seconds measured{0}; measured < total; measured += round) {
    Streams streams(engine);
    const std::optional<Tokenised> done = TokeniseNowAndThen(engine, streams, text, round);
    const auto [of_all, of_first] = streams.Stop();
    if (!done.has_value()) return 1;
    tokenised.prompts += done->prompts;
    tokenised.seconds += done->seconds;
    Append(of_all, all);
    Append(of_first, steps);
  }
  if (steps.quiet_ms.empty() || steps.loud_ms.empty()) {
    std::fprintf(stderr, "encode_gap: no tokens %s\n",
                 steps.quiet_ms.empty() ? "undisturbed" : "beside the prompts");
    return 1;
  }
  const double quiet = Quantile(all.quiet_ms, 0.99), loud = Quantile(all.loud_ms, 0.99);
  const auto [low, high] = IntervalOfGrowth(steps);
  std::printf("undisturbed: %zu steps, p50 %.1f ms, p99 %.1f ms\n", steps.quiet_ms.size(),
              Quantile(all.quiet_ms, 0.5), quiet);
  std::printf(
      "beside %d prompts of 1 MB, %.2f s each: %zu steps, p50 %.1f ms, p99 %.1f ms; growth %.1f "
      "ms [%.1f, %.1f]\n",
      tokenised.prompts, tokenised.seconds / tokenised.prompts, steps.loud_ms.size(),
      Quantile(all.loud_ms, 0.5), loud, loud - quiet, low, high);
  return loud - quiet < kLimitMs ? 0 : 1;
}

}  // namespace
}  // namespace refrain

int main(int argc, char** argv) {
  return refrain::Main(argc > 1 ? argv[1] : refrain::testing::SmolLm2Path(),
                       std::chrono::seconds(argc > 2 ? std::atoi(argv[2]) : 15));
}
