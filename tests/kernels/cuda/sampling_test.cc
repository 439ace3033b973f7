#include "kernels/cuda/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "engine/sampler.h"
#include "kernels/cuda/runtime.h"
#include "tests/kernels/cuda/random_logits.h"

namespace refrain::kernels::cuda {
namespace {

using engine::SamplerState;
using engine::SamplingParams;
using engine::TokenId;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Sampled {
  std::vector<int32_t> tokens;  // [rows]
  std::vector<float> logits;    // [rows, vocab], as the edits left them
};

std::unique_ptr<Runtime> OpenAny() {
  auto runtime = OpenDevice(0);
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_TRUE((*runtime)->MakeCurrent().ok());
  return *std::move(runtime);
}

// Runs the kernel over rows of `vocab` logits each: on the emulated device, or on the GPU of this
// machine where the test is built for one.
class DeviceSampler {
 public:
  DeviceSampler() : runtime_(OpenAny()) {
    stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
  }

  Sampled Run(const std::vector<float>& logits, std::vector<SamplingRow> rows,
              const std::vector<LogitEdit>& edits = {}, const std::vector<int32_t>& allowed = {},
              int threads = 64) {
    SamplingLaunch launch;
    launch.num_rows = static_cast<int>(rows.size());
    launch.vocab = static_cast<int>(logits.size() / rows.size());
    launch.threads = threads;
    launch.stride = launch.vocab;
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].logits_row = rows[i].slot = static_cast<int32_t>(i);
    }
    launch.rows = Upload(rows);
    launch.edits = Upload(edits);
    launch.allowed = Upload(allowed);
    launch.allowed_logits = Upload(std::vector<float>(allowed.size()));
    launch.logits = Upload(logits);
    launch.tokens = Upload(std::vector<int32_t>(rows.size(), -1));
    LaunchSampling(*stream_, launch);
    const absl::Status status = runtime_->Synchronize(*stream_);
    EXPECT_TRUE(status.ok()) << status;
    Sampled sampled;
    sampled.tokens = Download(launch.tokens, rows.size());
    sampled.logits = Download(launch.logits, logits.size());
    for (std::byte* data : uploaded_) runtime_->FreeDevice(data);
    uploaded_.clear();
    return sampled;
  }

 private:
  template <class T>
  T* Upload(const std::vector<T>& values) {
    std::byte* const data = *runtime_->AllocateDevice(values.size() * sizeof(T));
    uploaded_.push_back(data);
    const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
    EXPECT_TRUE(runtime_->Copy(data, bytes, values.size() * sizeof(T), *stream_).ok());
    return reinterpret_cast<T*>(data);
  }
  template <class T>
  std::vector<T> Download(const T* from, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(runtime_
                    ->Copy(reinterpret_cast<std::byte*>(values.data()),
                           reinterpret_cast<const std::byte*>(from), count * sizeof(T), *stream_)
                    .ok());
    return values;
  }

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::byte*> uploaded_;
};

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// What the parameters leave of the distribution, by sorting and in double: the same rules as the
// host's sampler, whose tokens the tests hold it against.
std::map<int32_t, double> Expected(const std::vector<float>& logits, const SamplingParams& p) {
  const float best = *std::max_element(logits.begin(), logits.end());
  const auto inverse = static_cast<float>(1.0 / p.temperature);
  std::vector<std::pair<float, int32_t>> order;  // -scaled, id: best first, ties by id
  for (size_t i = 0; i < logits.size(); ++i) {
    const float scaled = (logits[i] - best) * inverse;
    if (p.min_p > 0 && scaled < static_cast<float>(std::log(p.min_p))) continue;
    order.emplace_back(-scaled, static_cast<int32_t>(i));
  }
  std::sort(order.begin(), order.end());
  if (p.top_k > 0) order.resize(std::min<size_t>(order.size(), p.top_k));
  double total = 0;
  for (const auto& [scaled, id] : order) total += std::exp(-static_cast<double>(scaled));
  if (p.top_p < 1.0) {
    double sum = 0;
    size_t kept = 0;
    while (kept < order.size() && sum < p.top_p * total) {
      sum += std::exp(-static_cast<double>(order[kept++].first));
    }
    order.resize(kept);
    total = sum;
  }
  std::map<int32_t, double> probabilities;
  for (const auto& [scaled, id] : order) {
    probabilities[id] = std::exp(-static_cast<double>(scaled)) / total;
  }
  return probabilities;
}

TEST(Sampling, GreedyChoosesTheHostsToken) {
  DeviceSampler sampler;
  for (const int vocab : {1, 31, 32, 97, 512, 1009}) {
    constexpr int kRows = 9;
    std::vector<float> logits = RandomLogits(kRows * vocab, vocab, 3.0f);
    // Rows of equal logits, with NaN, with infinities, of nothing but -inf or NaN.
    for (int i = 0; i < vocab; ++i) {
      logits[1 * vocab + i] = std::round(logits[1 * vocab + i] / 3);
      if (i % 3 == 0) logits[2 * vocab + i] = NAN;
      if (i % 5 == 1) logits[3 * vocab + i] = -kInfinity;
      if (i % 7 == 6) logits[4 * vocab + i] = kInfinity;
      logits[5 * vocab + i] = -kInfinity;
      logits[6 * vocab + i] = NAN;
      logits[7 * vocab + i] = i % 2 == 0 ? NAN : -kInfinity;
    }
    const Sampled sampled = sampler.Run(logits, std::vector<SamplingRow>(kRows));
    for (int row = 0; row < kRows; ++row) {
      const std::span<const float> own(logits.data() + row * vocab, vocab);
      EXPECT_EQ(sampled.tokens[row], static_cast<int32_t>(engine::ArgMax(own)))
          << "row " << row << " of " << vocab;
    }
  }
}

// Penalties, bias and bans leave the very bits that the host's leave.
TEST(Sampling, EditsLeaveTheHostsLogits) {
  constexpr int kVocab = 300;
  const std::vector<float> logits = RandomLogits(kVocab, 5, 4.0f);
  SamplingParams params = Greedy();
  params.repetition_penalty = 1.3;
  params.presence_penalty = 0.7;
  params.frequency_penalty = 0.11;
  params.logit_bias = {{TokenId{7}, 2.5f}, {TokenId{8}, -90.0f}, {TokenId{20}, 0.3f}};
  const std::vector<TokenId> prompt = {TokenId{3}, TokenId{20}, TokenId{21}, TokenId{22}};
  SamplerState host(params, 1, prompt, /*min_tokens=*/5, {TokenId{2}});
  std::vector<LogitEdit> edits = {{.token = 2, .banned = 1},       {.token = 7, .bias = 2.5f},
                                  {.token = 8, .bias = -90.0f},    {.token = 20, .bias = 0.3f},
                                  {.token = kVocab, .bias = 1.0f}, {.token = -1, .bias = 1.0f}};
  for (const int token : {3, 20, 21, 22}) {
    edits.push_back({.token = token, .repetition_penalty = 1.3f});
  }
  std::map<int32_t, int> chosen;
  for (int step = 0; step < 4; ++step) {
    std::vector<float> want = logits;
    const auto token = static_cast<int32_t>(host.Sample(want));
    std::vector<LogitEdit> now = edits;
    for (const auto& [id, count] : chosen) {
      LogitEdit edit{.token = id, .subtracted = static_cast<float>(0.7 + 0.11 * count)};
      if (id != 3 && (id < 20 || id > 22)) edit.repetition_penalty = 1.3f;
      now.push_back(edit);
    }
    std::stable_sort(now.begin(), now.end(),
                     [](const auto& a, const auto& b) { return a.token < b.token; });
    SamplingRow row;
    row.edit_end = static_cast<int32_t>(now.size());
    const Sampled got = DeviceSampler().Run(logits, {row}, now);
    EXPECT_EQ(got.tokens[0], token);
    for (int i = 0; i < kVocab; ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(got.logits[i]), std::bit_cast<uint32_t>(want[i])) << i;
    }
    ++chosen[token];
  }
  EXPECT_GE(chosen.size(), 2u) << "penalties never changed the choice";
}

TEST(Sampling, OnlyAllowedTokensAreChosen) {
  constexpr int kVocab = 200;
  const std::vector<float> logits = RandomLogits(2 * kVocab, 6, 4.0f);
  SamplingParams params = Greedy();
  params.allowed_tokens = {TokenId{150}, TokenId{3}, TokenId{77}};
  SamplerState host(params, 1, {}, 0, {});
  std::vector<float> want(logits.begin() + kVocab, logits.end());
  const auto token = static_cast<int32_t>(host.Sample(want));
  SamplingRow restricted;
  restricted.allowed_begin = 1;
  restricted.allowed_end = 4;
  const Sampled got = DeviceSampler().Run(logits, {SamplingRow(), restricted}, {}, {0, 150, 3, 77});
  EXPECT_EQ(got.tokens[1], token);
  EXPECT_EQ(std::vector<float>(got.logits.begin() + kVocab, got.logits.end()), want);
  // The other row is as it was.
  EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + kVocab, got.logits.begin()));
}

struct Filter {
  double temperature, top_p, min_p;
  int32_t top_k;
  bool whole = false;  // logits with many equal ones
};

std::ostream& operator<<(std::ostream& out, const Filter& f) {
  return out << "temperature " << f.temperature << " top_p " << f.top_p << " min_p " << f.min_p
             << " top_k " << f.top_k << (f.whole ? " ties" : "");
}

constexpr Filter kFilters[] = {
    {1.0, 1.0, 0.0, 0},       {0.6, 1.0, 0.0, 0},        {1.7, 1.0, 0.0, 1},
    {1.0, 1.0, 0.0, 5},       {1.0, 1.0, 0.0, 64},       {1.3, 1.0, 0.0, 100000},
    {1.0, 0.9, 0.0, 0},       {0.8, 0.5, 0.0, 0},        {1.0, 0.01, 0.0, 0},
    {1.0, 0.999, 0.0, 0},     {1.0, 1.0, 0.1, 0},        {2.0, 1.0, 0.5, 0},
    {1.0, 0.8, 0.0, 20},      {1.0, 0.95, 0.02, 30},     {1.0, 1.0, 0.0, 7, true},
    {1.0, 0.6, 0.0, 0, true}, {1.0, 0.9, 0.0, 40, true}, {1.0, 1.0, 0.2, 3, true},
};

class SamplingFilter : public testing::TestWithParam<Filter> {
 protected:
  static SamplingParams Params() {
    SamplingParams params;
    params.temperature = GetParam().temperature;
    params.top_p = GetParam().top_p;
    params.min_p = GetParam().min_p;
    params.top_k = GetParam().top_k;
    return params;
  }
  static SamplingRow Row(double uniform) {
    const Filter& f = GetParam();
    return MakeSamplingRow(f.temperature, f.top_k, f.top_p, f.min_p, uniform);
  }
};

// Random numbers at even distances meet every token as often as its probability says, up to one.
TEST_P(SamplingFilter, KeepsTheExpectedTokensWithTheirProbabilities) {
  constexpr int kVocab = 211, kDraws = 160;
  const std::vector<float> logits =
      RandomLogits(kVocab, 17, GetParam().whole ? 1.2f : 2.5f, GetParam().whole);
  std::vector<float> all;
  std::vector<SamplingRow> rows;
  for (int i = 0; i < kDraws; ++i) {
    all.insert(all.end(), logits.begin(), logits.end());
    rows.push_back(Row((i + 0.5) / kDraws));
  }
  const Sampled sampled = DeviceSampler().Run(all, rows);
  std::map<int32_t, int> hits;
  for (const int32_t token : sampled.tokens) ++hits[token];
  const std::map<int32_t, double> expected = Expected(logits, Params());
  for (const auto& [token, count] : hits) {
    EXPECT_TRUE(expected.contains(token)) << token << " was filtered out";
  }
  for (const auto& [token, probability] : expected) {
    EXPECT_NEAR(hits[token], probability * kDraws, 1.0) << token;
  }
}

// The first and the last token of what is left, by id: what was cut off shows at both ends.
TEST_P(SamplingFilter, TheEndsOfTheUnitIntervalAreTheFirstAndTheLastTokenKept) {
  constexpr int kVocab = 1500;
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    const std::vector<float> logits = RandomLogits(kVocab, seed, 1.5f, GetParam().whole);
    std::vector<float> both = logits;
    both.insert(both.end(), logits.begin(), logits.end());
    const Sampled sampled =
        DeviceSampler().Run(both, {Row(0.0), Row(std::nextafter(1.0, 0.0))}, {}, {}, 96);
    const std::map<int32_t, double> expected = Expected(logits, Params());
    EXPECT_EQ(sampled.tokens[0], expected.begin()->first);
    EXPECT_EQ(sampled.tokens[1], expected.rbegin()->first);
  }
}

// What the tests expect is what the host's sampler does.
TEST_P(SamplingFilter, TheExpectedTokensAreTheHosts) {
  constexpr int kVocab = 211, kDraws = 3000;
  const std::vector<float> logits =
      RandomLogits(kVocab, 17, GetParam().whole ? 1.2f : 2.5f, GetParam().whole);
  const std::map<int32_t, double> expected = Expected(logits, Params());
  SamplerState host(Params(), 9, {}, 0, {});
  std::map<int32_t, int> hits;
  for (int i = 0; i < kDraws; ++i) {
    std::vector<float> row = logits;
    ++hits[static_cast<int32_t>(host.Sample(row))];
  }
  for (const auto& [token, count] : hits) EXPECT_TRUE(expected.contains(token)) << token;
  for (const auto& [token, probability] : expected) {
    const double mean = probability * kDraws;
    EXPECT_NEAR(hits[token], mean, 5 * std::sqrt(mean) + 1) << token;
  }
}

INSTANTIATE_TEST_SUITE_P(Filters, SamplingFilter, testing::ValuesIn(kFilters));

// As on the host: the best token where its neighbours' distance to it is no number.
TEST(Sampling, RowsWithoutADistributionGetTheHostsToken) {
  std::vector<float> infinite = RandomLogits(64, 1, 1.0f);
  infinite[40] = infinite[50] = kInfinity;
  std::vector<float> logits = infinite;
  logits.insert(logits.end(), 64, -kInfinity);
  logits.insert(logits.end(), 64, NAN);
  const SamplingRow row = MakeSamplingRow(1.0, 5, 0.9, 0.0, 0.5);
  const Sampled sampled = DeviceSampler().Run(logits, {row, row, row});
  for (int i = 0; i < 3; ++i) {
    SamplingParams params;
    params.top_k = 5;
    params.top_p = 0.9;
    SamplerState host(params, 1, {}, 0, {});
    std::vector<float> own(logits.begin() + 64 * i, logits.begin() + 64 * (i + 1));
    EXPECT_EQ(sampled.tokens[i], static_cast<int32_t>(host.Sample(own))) << i;
  }
}

TEST(Sampling, TheNumberOfThreadsChangesNothing) {
  constexpr int kVocab = 997;
  const std::vector<float> logits = RandomLogits(kVocab, 3, 2.0f);
  for (const double uniform : {0.1, 0.35, 0.77, 0.9999}) {
    const SamplingRow row = MakeSamplingRow(0.9, 200, 0.9, 0.0, uniform);
    const int32_t token = DeviceSampler().Run(logits, {row}, {}, {}, 32).tokens[0];
    EXPECT_EQ(DeviceSampler().Run(logits, {row}, {}, {}, 128).tokens[0], token);
    EXPECT_EQ(DeviceSampler().Run(logits, {row}, {}, {}, 512).tokens[0], token);
  }
}

// 4,095 equal candidates, each of half of 2^32 units of probability: half of all is in one bin, and
// every other addition to it is carried.
TEST(Sampling, ManyEqualCandidatesAreSummedExactly) {
  constexpr int kVocab = 4096;
  std::vector<float> logits(kVocab, -9.0f);
  logits[1234] = 0.0f;
  SamplingParams params;
  params.temperature = 1.0;
  params.top_p = 0.9;
  const std::map<int32_t, double> expected = Expected(logits, params);
  ASSERT_GT(expected.size(), 2000u);
  ASSERT_LT(expected.size(), 3500u);
  std::vector<float> both = logits;
  both.insert(both.end(), logits.begin(), logits.end());
  const auto row = [](double uniform) { return MakeSamplingRow(1.0, 0, 0.9, 0.0, uniform); };
  const Sampled sampled =
      DeviceSampler().Run(both, {row(0.0), row(std::nextafter(1.0, 0.0))}, {}, {}, 512);
  EXPECT_EQ(sampled.tokens[0], expected.begin()->first);
  EXPECT_EQ(sampled.tokens[1], expected.rbegin()->first);
}

// Rows one behind the other, of which only some begin at a multiple of 16 bytes.
TEST(Sampling, ARowsPlaceInMemoryChangesNothing) {
  constexpr int kVocab = 1003, kRows = 5;
  const std::vector<float> logits = RandomLogits(kVocab, 8, 2.0f);
  std::vector<float> all;
  for (int i = 0; i < kRows; ++i) all.insert(all.end(), logits.begin(), logits.end());
  for (const double uniform : {0.2, 0.7, 0.999}) {
    const SamplingRow row = MakeSamplingRow(0.9, 300, 0.95, 0.0, uniform);
    const Sampled sampled = DeviceSampler().Run(all, std::vector<SamplingRow>(kRows, row));
    EXPECT_EQ(sampled.tokens, std::vector<int32_t>(kRows, sampled.tokens[0]));
  }
}

TEST(Sampling, RefusesMoreTokensThanItsSumsHold) {
  const auto runtime = OpenAny();
  auto stream = *runtime->CreateStream(StreamPriority::kNormal);
  LaunchSampling(*stream, {.num_rows = 1, .vocab = kMaxSamplingVocab + 1});
  ASSERT_TRUE(stream->failure().has_value());
  EXPECT_NE(stream->failure()->find("262145 tokens"), std::string::npos) << *stream->failure();
}

}  // namespace
}  // namespace refrain::kernels::cuda
