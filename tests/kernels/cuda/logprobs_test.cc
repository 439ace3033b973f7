#include "kernels/cuda/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sampling.h"
#include "tests/kernels/cuda/random_logits.h"

namespace refrain::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Runs the kernel over rows of `vocab` logits each: on the emulated device, or on the GPU of this
// machine where the test is built for one.
class DeviceLogprobs {
 public:
  DeviceLogprobs() {
    auto runtime = OpenDevice(0);
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    EXPECT_TRUE(runtime_->MakeCurrent().ok());
    stream_ = *runtime_->CreateStream(StreamPriority::kNormal);
  }

  // Of each row its entries. `sampled`: by slot.
  std::vector<std::vector<LogprobEntry>> Run(const std::vector<float>& logits,
                                             std::vector<LogprobsRow> rows,
                                             const std::vector<int32_t>& sampled = {},
                                             int threads = 64) {
    int32_t count = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].logits_row = static_cast<int32_t>(i);
      rows[i].entry_begin = count;
      count += 1 + rows[i].top;
    }
    LogprobsLaunch launch;
    launch.num_rows = static_cast<int>(rows.size());
    launch.vocab = static_cast<int>(logits.size() / rows.size());
    launch.threads = threads;
    launch.stride = launch.vocab;
    launch.rows = Upload(rows);
    launch.logits = Upload(logits);
    launch.sampled = Upload(sampled);
    // As the sampler has it: the kernel writes to the host's memory.
    std::byte* const pinned =
        *runtime_->AllocatePinned(static_cast<size_t>(count) * sizeof(LogprobEntry));
    launch.entries = reinterpret_cast<LogprobEntry*>(pinned);
    const std::span entries(launch.entries, static_cast<size_t>(count));
    // What a row leaves alone shows.
    std::fill(entries.begin(), entries.end(), LogprobEntry{-7, -7, -7.0f, -7.0f});
    LaunchLogprobs(*stream_, launch);
    const absl::Status status = runtime_->Synchronize(*stream_);
    EXPECT_TRUE(status.ok()) << status;
    for (std::byte* data : uploaded_) runtime_->FreeDevice(data);
    uploaded_.clear();
    std::vector<std::vector<LogprobEntry>> by_row;
    for (const LogprobsRow& row : rows) {
      const auto begin = entries.begin() + row.entry_begin;
      by_row.emplace_back(begin, begin + 1 + row.top);
    }
    runtime_->FreePinned(pinned);
    return by_row;
  }

 private:
  template <class T>
  T* Upload(const std::vector<T>& values) {
    std::byte* const data =
        *runtime_->AllocateDevice(std::max<size_t>(values.size(), 1) * sizeof(T));
    uploaded_.push_back(data);
    const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
    EXPECT_TRUE(runtime_->Copy(data, bytes, values.size() * sizeof(T), *stream_).ok());
    return reinterpret_cast<T*>(data);
  }

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::byte*> uploaded_;
};

// By sorting and in double. NaN counts as -infinity.
struct Expected {
  explicit Expected(std::vector<float> row) : logits(std::move(row)), order(logits.size()) {
    for (float& x : logits) {
      if (std::isnan(x)) x = -kInfinity;
    }
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x) - logits[order[0]]);
    log_of_sum = logits[order[0]] + std::log(sum);
  }
  double logprob(int32_t token) const { return logits[token] - log_of_sum; }
  int32_t rank(int32_t token) const {
    return static_cast<int32_t>(std::find(order.begin(), order.end(), token) - order.begin()) + 1;
  }

  std::vector<float> logits;
  std::vector<int32_t> order;  // best first
  double log_of_sum;
};

void ExpectEntry(const LogprobEntry& got, int32_t token, const Expected& want) {
  EXPECT_EQ(got.token, token);
  EXPECT_EQ(got.logit, want.logits[token]);
  if (std::isinf(want.logits[token])) {
    EXPECT_EQ(got.logprob, -kInfinity);
  } else {
    EXPECT_NEAR(got.logprob, want.logprob(token), 8e-7 + 6e-8 * std::abs(want.logprob(token)));
  }
}

std::set<int32_t> Tokens(std::span<const LogprobEntry> entries) {
  std::set<int32_t> tokens;
  for (const LogprobEntry& entry : entries) tokens.insert(entry.token);
  return tokens;
}

// Tokens that are given, sampled or the most probable, with lists of any length beside them.
TEST(Logprobs, AreThoseOfDoublePrecision) {
  DeviceLogprobs device;
  for (const int vocab : {1, 31, 32, 97, 512, 1009}) {
    for (const bool ties : {false, true}) {
      SCOPED_TRACE(std::to_string(vocab) + (ties ? " ties" : ""));
      const std::vector<int32_t> tops = {0, 1, 5, 20, vocab - 1, vocab};
      std::vector<float> logits;
      std::vector<LogprobsRow> rows;
      std::vector<int32_t> sampled;
      for (size_t i = 0; i < 3 * tops.size(); ++i) {
        const auto row = RandomLogits(vocab, static_cast<uint32_t>(vocab + i), 3.0f, ties);
        logits.insert(logits.end(), row.begin(), row.end());
        const int32_t given = static_cast<int32_t>(i * 37) % vocab;
        sampled.push_back(given);
        rows.push_back({.token = i % 3 == 0   ? given
                                 : i % 3 == 1 ? LogprobsRow::kSampled
                                              : LogprobsRow::kMostProbable,
                        .top = std::min(tops[i / 3], vocab),
                        .slot = static_cast<int32_t>(i)});
      }
      const auto entries = device.Run(logits, rows, sampled);
      for (size_t i = 0; i < rows.size(); ++i) {
        const Expected want({logits.begin() + i * vocab, logits.begin() + (i + 1) * vocab});
        const int32_t token = i % 3 == 2 ? want.order[0] : sampled[i];
        ExpectEntry(entries[i][0], token, want);
        EXPECT_EQ(entries[i][0].rank, want.rank(token));
        const std::span top = std::span(entries[i]).subspan(1);
        const auto best = want.order.begin();
        EXPECT_EQ(Tokens(top), std::set<int32_t>(best, best + rows[i].top)) << "row " << i;
        for (const LogprobEntry& entry : top) ExpectEntry(entry, entry.token, want);
      }
    }
  }
}

// Far from the best one there is no probability in f32, but a logarithm of it.
TEST(Logprobs, OfTokensWithoutProbabilityAreTold) {
  std::vector<float> logits(100, -300.0f);
  logits[40] = 5.0f;
  logits[41] = -kInfinity;
  logits[42] = NAN;
  const Expected want(logits);
  const auto entries = DeviceLogprobs().Run(
      [&] {
        std::vector<float> rows = logits;
        for (int i = 1; i < 4; ++i) rows.insert(rows.end(), logits.begin(), logits.end());
        return rows;
      }(),
      {{.token = 3, .top = 100}, {.token = 41, .top = 99}, {.token = 42}, {.token = 40, .top = 2}});
  ExpectEntry(entries[0][0], 3, want);
  EXPECT_EQ(entries[0][0].rank, 5);
  ExpectEntry(entries[1][0], 41, want);
  EXPECT_EQ(entries[1][0].rank, 99);
  EXPECT_EQ(entries[2][0].logprob, -kInfinity);
  EXPECT_EQ(entries[2][0].rank, 100);
  EXPECT_EQ(Tokens(std::span(entries[3]).subspan(1)), (std::set<int32_t>{40, 0}));
  // All numbers are listed, infinite ones too; nothing is in the place of the one that is none.
  const std::span all = std::span(entries[0]).subspan(1);
  std::set<int32_t> numbers = {-1};
  for (int32_t i = 0; i < 100; ++i) {
    if (i != 42) numbers.insert(i);
  }
  EXPECT_EQ(Tokens(all), numbers);
  numbers.erase(-1);
  EXPECT_EQ(Tokens(std::span(entries[1]).subspan(1)), numbers);
}

// A corrupted row: whoever reads it can tell.
TEST(Logprobs, ThereAreNoneWhereTheBestIsInfinite) {
  std::vector<float> logits = RandomLogits(64, 1, 1.0f);
  logits[40] = kInfinity;
  logits.insert(logits.end(), 64, -kInfinity);
  logits.insert(logits.end(), 64, NAN);
  logits.insert(logits.end(), logits.begin(), logits.begin() + 64);
  const auto entries = DeviceLogprobs().Run(logits,
                                            {{.token = 3, .top = 2},
                                             {.token = 3, .top = 2},
                                             {.token = LogprobsRow::kMostProbable, .top = 2},
                                             {.token = LogprobsRow::kSampled, .top = 2}},
                                            {-1});
  for (const int row : {0, 1}) {
    EXPECT_EQ(entries[row][0].token, 3) << row;
    EXPECT_TRUE(std::isnan(entries[row][0].logprob)) << row;
  }
  EXPECT_EQ(entries[2][0].token, -1);
  EXPECT_EQ(entries[3][0].token, -1);
  for (const auto& row : entries) {
    EXPECT_EQ(Tokens(std::span(row).subspan(1)), std::set<int32_t>{-1});
  }
}

// Of near equals, whose distances from the best are the same in f32.
TEST(Logprobs, OfTokensThatDifferLittleTheBetterOneIsListedAndRankedFirst) {
  std::vector<float> logits(50, -8.0f);
  logits[5] = 20.0f;
  logits[20] = 1.0f;
  logits[21] = std::nextafter(1.0f, 2.0f);
  logits[30] = -0.0f;
  logits[31] = 0.0f;
  std::vector<float> rows = logits;
  rows.insert(rows.end(), logits.begin(), logits.end());
  const auto entries =
      DeviceLogprobs().Run(rows, {{.token = 20, .top = 2}, {.token = 31, .top = 4}});
  EXPECT_EQ(entries[0][0].rank, 3);
  EXPECT_EQ(Tokens(std::span(entries[0]).subspan(1)), (std::set<int32_t>{5, 21}));
  EXPECT_EQ(entries[1][0].rank, 5);  // the zeros are equal
  EXPECT_EQ(Tokens(std::span(entries[1]).subspan(1)), (std::set<int32_t>{5, 21, 20, 30}));
}

TEST(Logprobs, OfALargeVocabularyAreThoseOfDoublePrecision) {
  constexpr int kVocab = 1 << 17;
  std::vector<float> logits(kVocab, 0.1f);
  logits[77] = 9.3f;
  const Expected want(logits);
  const auto entries = DeviceLogprobs().Run(logits, {{.token = 4, .top = 2}}, {}, 512);
  ExpectEntry(entries[0][0], 4, want);
  EXPECT_EQ(entries[0][0].rank, 6);
  EXPECT_EQ(Tokens(std::span(entries[0]).subspan(1)), (std::set<int32_t>{77, 0}));
}

TEST(Logprobs, TheNumberOfThreadsAndARowsPlaceInMemoryChangeNoBit) {
  constexpr int kVocab = 1003, kRows = 5;
  const std::vector<float> logits = RandomLogits(kVocab, 3, 2.0f);
  std::vector<float> all;
  for (int i = 0; i < kRows; ++i) all.insert(all.end(), logits.begin(), logits.end());
  const std::vector<LogprobsRow> rows(kRows, {.token = 77, .top = 12});
  const auto bytes = [](std::vector<LogprobEntry> entries) {
    std::sort(entries.begin() + 1, entries.end(),
              [](const auto& a, const auto& b) { return a.token < b.token; });
    return std::string(reinterpret_cast<const char*>(entries.data()),
                       entries.size() * sizeof(LogprobEntry));
  };
  const std::string want = bytes(DeviceLogprobs().Run(logits, {rows[0]}, {}, 32)[0]);
  for (const int threads : {64, 96, 512}) {
    for (const auto& row : DeviceLogprobs().Run(all, rows, {}, threads)) {
      EXPECT_EQ(bytes(row), want) << threads;
    }
  }
}

TEST(Logprobs, RefuseMoreTokensThanTheirSumsHold) {
  const auto runtime = *OpenDevice(0);
  auto stream = *runtime->CreateStream(StreamPriority::kNormal);
  LaunchLogprobs(*stream, {.num_rows = 1, .vocab = kMaxSamplingVocab + 1});
  ASSERT_TRUE(stream->failure().has_value());
  EXPECT_NE(stream->failure()->find("262145 tokens"), std::string::npos) << *stream->failure();
}

}  // namespace
}  // namespace refrain::kernels::cuda
