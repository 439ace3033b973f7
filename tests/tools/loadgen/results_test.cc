// Statistics, limits, sweeps and reports.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "tools/loadgen/metrics_watch.h"
#include "tools/loadgen/progress.h"
#include "tools/loadgen/recorder.h"
#include "tools/loadgen/report.h"
#include "tools/loadgen/samples.h"
#include "tools/loadgen/slo.h"
#include "tools/loadgen/sweep.h"

namespace refrain::loadgen {
namespace {

// --- samples and histogram ---

TEST(Samples, PercentilesAreInterpolatedBetweenValues) {
  Samples samples;
  for (int i = 100; i >= 0; --i) samples.Add(i * 10.0);  // 0, 10, ..., 1000
  const Summary summary = samples.Summarize();
  EXPECT_EQ(summary.count, 101);
  EXPECT_DOUBLE_EQ(summary.mean, 500);
  EXPECT_DOUBLE_EQ(summary.p50, 500);
  EXPECT_DOUBLE_EQ(summary.p90, 900);
  EXPECT_DOUBLE_EQ(summary.p99, 990);
  EXPECT_DOUBLE_EQ(summary.max, 1000);

  Samples two;
  two.Add(1);
  two.Add(2);
  EXPECT_DOUBLE_EQ(two.Summarize().p90, 1.9);
}

TEST(Samples, OfNothingAreZero) {
  EXPECT_EQ(Samples().Summarize().count, 0);
  EXPECT_EQ(Histogram(1).Summarize().count, 0);
  EXPECT_EQ(Histogram(1).Percentile(0.5), 0);
}

// Percentiles against the sorted values, over seven orders of magnitude.
TEST(Histogram, PercentilesAreWithinFourTenthsOfAPercentOfTheExactOnes) {
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> law(2, 2.5);
  Histogram histogram(0.001);
  std::vector<double> exact;
  for (int i = 0; i < 50001; ++i) {
    const double value = std::max(0.2, law(random));  // above 128 units
    histogram.Add(value);
    exact.push_back(value);
  }
  std::sort(exact.begin(), exact.end());
  for (const double share : {0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double value = exact[static_cast<size_t>(std::llround(share * 50000))];
    EXPECT_NEAR(histogram.Percentile(share), value, 0.004 * value) << share;
  }
  double sum = 0;
  for (const double value : exact) sum += value;
  EXPECT_NEAR(histogram.Summarize().mean, sum / 50001, 1e-6 * sum / 50001);
  EXPECT_EQ(histogram.Summarize().max, exact.back());
}

TEST(Histogram, SmallValuesAreExactToTheUnit) {
  Histogram histogram(1);
  for (int i = 0; i <= 100; ++i) histogram.Add(i);
  EXPECT_DOUBLE_EQ(histogram.Percentile(0.5), 50);
  EXPECT_DOUBLE_EQ(histogram.Percentile(0.99), 99);
}

TEST(Histogram, TakesValuesThatAreNegativeOrBeyondItsRange) {
  Histogram histogram(1);
  histogram.Add(-5);
  histogram.Add(1e30);
  EXPECT_EQ(histogram.Percentile(0), 0);
  EXPECT_GT(histogram.Percentile(1), 1e12);
}

// --- recorder ---

RequestRecord Answered(double planned_s, double first_s, double last_s, double end_s,
                       int64_t tokens) {
  return {.planned_s = planned_s,
          .sent_s = planned_s,
          .first_token_s = first_s,
          .last_token_s = last_s,
          .end_s = end_s,
          .input_tokens = 10,
          .output_tokens = tokens};
}

double Value(const RequestValues& values, Metric metric) {
  return values.ms[static_cast<size_t>(metric)];
}

// Planned at 1 s, sent late at 3 s: the two seconds count.
TEST(Recorder, LatenciesCountFromThePlannedArrival) {
  RequestRecord record = Answered(1, 4, 5, 5.5, 11);
  record.sent_s = 3;
  const RequestValues values = ValuesOf(record);
  EXPECT_DOUBLE_EQ(Value(values, Metric::kTtft), 3000);
  EXPECT_DOUBLE_EQ(Value(values, Metric::kTpot), 100);
  EXPECT_DOUBLE_EQ(Value(values, Metric::kE2e), 4500);
  EXPECT_NEAR(Value(values, Metric::kNormalized), 4500.0 / 11, 1e-9);
}

TEST(Recorder, AnAnswerOfOneTokenHasNoTpot) {
  EXPECT_FALSE(ValuesOf(Answered(0, 1, 1, 1, 1)).has_tpot);
}

// 0 would say that its tokens cost nothing.
TEST(Recorder, AnAnswerWhoseTokensComeAllAtOnceHasNoTpot) {
  EXPECT_FALSE(ValuesOf(Answered(0, 1, 1, 2, 32)).has_tpot);
}

TEST(Recorder, CountsFailuresByKindAndKeepsTheFirstMessage) {
  Recorder recorder({.limits = {{Metric::kE2e, 1500}}});
  recorder.Sent(0, 0.5);
  recorder.Sent(0, 0);
  recorder.Sent(1, 1);
  recorder.Sent(1, 1);
  EXPECT_EQ(recorder.in_flight(), 4);
  recorder.Ended(Answered(0, 0.5, 1, 1, 5));   // good
  recorder.Ended(Answered(0, 0.5, 1, 2, 15));  // too slow
  RequestRecord failed = Answered(1, 0, 0, 3, 0);
  failed.failure = Failure{"http_429", "first"};
  recorder.Ended(failed);
  failed.failure = Failure{"http_429", "second"};
  failed.end_s = 4;
  recorder.Ended(failed);
  const RunResult result = recorder.Finish(0);
  EXPECT_EQ(result.completed, 2);
  EXPECT_EQ(result.failed, 2);
  EXPECT_EQ(result.good, 1);
  EXPECT_EQ(result.output_tokens, 20);
  EXPECT_EQ(result.peak_in_flight, 4);
  EXPECT_DOUBLE_EQ(result.duration_s, 4);
  EXPECT_DOUBLE_EQ(result.failed_share(), 0.5);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures.at("http_429").count, 2);
  EXPECT_EQ(result.failures.at("http_429").example, "first");
  EXPECT_NEAR(result.send_lag.max, 500, 1e-9);
  EXPECT_EQ(result.metrics[static_cast<size_t>(Metric::kE2e)].count, 2);
}

TEST(Recorder, TokensThatComeTogetherComeAtOnce) {
  Recorder recorder({});
  recorder.Gap(0.03, 3);
  const Summary itl = recorder.Finish(0).itl;
  EXPECT_EQ(itl.count, 3);
  EXPECT_NEAR(itl.mean, 10, 1e-9);
  EXPECT_NEAR(itl.max, 30, 1e-9);
}

// --- limits ---

TEST(Slo, ReadsLimitsAndRefusesWhatIsNone) {
  const auto limits = ParseSloLimits("normalized:200,ttft:1000.5");
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ((*limits)[0].metric, Metric::kNormalized);
  EXPECT_EQ((*limits)[1].most_ms, 1000.5);
  for (const char* bad : {"", "ttft", "ttft:", "ttft:0", "ttft:x", "speed:5", "ttft:1,,e2e:2"}) {
    const auto refused = ParseSloLimits(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_NE(std::string(refused.status().message()).find("normalized"), std::string::npos);
  }
  EXPECT_EQ(*ParseStatistic("p90"), Statistic::kP90);
  EXPECT_FALSE(ParseStatistic("p95").ok());
}

TEST(Slo, NamesTheLimitsThatALoadBreaks) {
  Slo slo = {.limits = {{Metric::kTtft, 100}, {Metric::kE2e, 50}}, .statistic = Statistic::kP90};
  std::array<Summary, kMetrics> summaries;
  summaries[0] = {.count = 9, .mean = 500, .p90 = 100};
  summaries[2] = {.count = 9, .p90 = 51};
  const auto broken = BrokenLimits(slo, summaries, 0.02);
  ASSERT_EQ(broken.size(), 2u);
  EXPECT_EQ(broken[0], "p90 e2e is 51.0 ms, over 50 ms");
  EXPECT_EQ(broken[1], "2.00 % of the requests failed, over 0 %");
  slo.most_failed_share = 0.02;
  summaries[2].p90 = 50;
  EXPECT_TRUE(BrokenLimits(slo, summaries, 0.02).empty());
}

// Of answers of one token, or that a proxy sends on as a whole, nobody knows how it kept its limit.
TEST(Slo, IsBrokenWhereAMetricOfALimitWasNotMeasured) {
  const Slo slo = {.limits = {{Metric::kTpot, 20}, {Metric::kTtft, 2000}}};
  Recorder recorder(slo);
  recorder.Sent(0, 0);
  recorder.Ended(Answered(0, 1, 1, 1, 1));
  recorder.Sent(0, 0);
  recorder.Ended(Answered(0, 1, 1, 1, 32));
  EXPECT_EQ(BrokenLimits(slo, recorder.Finish(0).metrics, 0),
            (std::vector<std::string>{"no tpot was measured"}));
}

TEST(Slo, IsBrokenByALoadOfWhichNothingWasAnsweredHoweverManyMayFail) {
  const Slo slo = {.limits = {{Metric::kTtft, 100}}, .most_failed_share = 1};
  EXPECT_EQ(BrokenLimits(slo, {}, 1), (std::vector<std::string>{"no request succeeded"}));
}

// --- sweeps ---

// A server that holds up to `capacity`: what a sweep tries until it is over.
std::vector<double> Tried(Sweep* sweep, double capacity) {
  std::vector<double> tried;
  while (const auto rate = sweep->Next()) {
    tried.push_back(*rate);
    sweep->Report(*rate, *rate <= capacity);
    if (tried.size() > 100) break;
  }
  return tried;
}

TEST(Sweep, FindsTheHighestRateToThePrecisionAskedFor) {
  for (const double capacity : {0.013, 0.7, 1.0, 5.3, 1234.0}) {
    Sweep sweep({.start = 1, .factor = 2, .precision = 0.05});
    const auto tried = Tried(&sweep, capacity);
    ASSERT_TRUE(sweep.highest_held().has_value()) << capacity;
    EXPECT_LE(*sweep.highest_held(), capacity);
    EXPECT_GT(*sweep.highest_held() * 1.05001, capacity);
    EXPECT_GT(*sweep.lowest_broken(), capacity);
    EXPECT_LT(tried.size(), 30u);
  }
}

TEST(Sweep, EndsAtTheFinestPrecisionThatIsTaken) {
  Sweep sweep({.start = 1, .precision = kFinestPrecision});
  EXPECT_LT(Tried(&sweep, 1.234567).size(), 60u);
  EXPECT_NEAR(*sweep.highest_held(), 1.234567, 2e-6);
}

TEST(Sweep, EndsWhereNoRateIsHeldAndWhereAllAre) {
  Sweep hopeless({.start = 4});
  EXPECT_LT(Tried(&hopeless, 0).size(), 20u);
  EXPECT_FALSE(hopeless.highest_held().has_value());

  Sweep endless({.start = 4, .most = 100});
  EXPECT_EQ(Tried(&endless, 1e9), (std::vector<double>{4, 8, 16, 32, 64}));
  EXPECT_EQ(endless.highest_held(), 64);
  EXPECT_FALSE(endless.lowest_broken().has_value());
}

// A rate that holds by luck above one that broke does not count.
TEST(Sweep, TriesAllRatesOfAListAndTrustsNoneAboveABrokenOne) {
  Sweep sweep({.rates = {1, 2, 4, 8}});
  std::vector<double> tried;
  while (const auto rate = sweep.Next()) {
    tried.push_back(*rate);
    sweep.Report(*rate, *rate != 4);
  }
  EXPECT_EQ(tried, (std::vector<double>{1, 2, 4, 8}));
  EXPECT_EQ(sweep.highest_held(), 2);
  EXPECT_EQ(sweep.lowest_broken(), 4);
}

TEST(Sweep, ReadsListsAndSearches) {
  EXPECT_EQ(ParseSweep("1,2.5")->rates, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(ParseSweep("3:1.5")->factor, 1.5);
  EXPECT_EQ(ParseSweep("3")->start, 3);
  for (const char* bad : {"", "0", "-1", "a", "1,", "1,x", "2:1", "2:", "2:0.5", "nan", "inf"}) {
    EXPECT_FALSE(ParseSweep(bad).ok()) << bad;
  }
}

// --- reports ---

TEST(Report, TableAndJsonHaveWhatWasMeasured) {
  Recorder recorder({.limits = {{Metric::kE2e, 1500}}});
  recorder.Sent(0, 0);
  RequestRecord record = Answered(0, 0.5, 1, 2, 10);
  record.cached_tokens = 5;
  recorder.Ended(record);
  const Slo slo = {.limits = {{Metric::kE2e, 1500}}};
  const ReportedRun run = {.rate_per_s = 3,
                           .result = recorder.Finish(0),
                           .server_peaks = {{"refrain_kv_used_bytes", 4096}},
                           .broken_limits = {"p99 e2e is 2000.0 ms, over 1500 ms"}};
  const std::string table = RunTable(run, slo);
  for (const char* text : {"1 completed, 0 failed", "0.50 requests/s", "5.0 output tok/s",
                           "5 of 10 input tokens (50.0 %)", "refrain_kv_used_bytes: 4096",
                           "normalized (per token)", "not held: p99 e2e"}) {
    EXPECT_NE(table.find(text), std::string::npos) << text << "\n" << table;
  }
  EXPECT_NE(SweepTable({run}, {}, slo).find("| 0 | 50.0 % | p99 e2e"), std::string::npos);
  const nlohmann::json json = RunJson(run, slo);
  EXPECT_EQ(json["latency_ms"]["normalized"]["mean"], 200);
  EXPECT_EQ(json["throughput"]["output_tokens_per_s"], 5);
  EXPECT_EQ(json["slo"]["held"], false);
  EXPECT_EQ(json["slo"]["good"], 0);
  EXPECT_EQ(json["cached_tokens"], 5);
  EXPECT_EQ(json["rate_per_s"], 3);
}

// An answer that its server cut is dear for its tokens and cheap for its request.
TEST(Report, TellsOfAnswersThatAreShorterThanAskedFor) {
  Recorder recorder({});
  for (const bool is_short : {true, false}) {
    recorder.Sent(0, 0);
    RequestRecord record = Answered(0, 0.5, 1, 1, 5);
    record.is_short = is_short;
    recorder.Ended(record);
  }
  ReportedRun run = {.rate_per_s = 3, .result = recorder.Finish(0), .exact_lengths = true};
  const std::string text = "1 of 2 answers are shorter than asked for";
  EXPECT_NE(RunTable(run, {}).find(text), std::string::npos);
  EXPECT_NE(SweepTable({run}, {}, {}).find("at 3 requests/s " + text), std::string::npos);
  EXPECT_EQ(RunJson(run, {})["short_answers"], 1);
  run.result.unknown_lengths = 1;
  EXPECT_EQ(RunJson(run, {})["short_answers"], 1) << "that is known";
  run.result.short_answers = 0;
  EXPECT_TRUE(RunJson(run, {})["short_answers"].is_null());
  run.result.short_answers = 1;
  run.result.unknown_lengths = 0;
  run.exact_lengths = false;
  EXPECT_EQ(RunTable(run, {}).find(text), std::string::npos);
  EXPECT_TRUE(RunJson(run, {})["short_answers"].is_null());
}

// A run says the same of its limits in its table, in the sweep's and in the JSON.
TEST(Report, OnlyARunThatWentToItsEndAndHadRequestsIsJudged) {
  const Slo slo = {.limits = {{Metric::kE2e, 1500}}};
  const auto told = [&](const ReportedRun& run) {
    const std::string sweep = SweepTable({run}, {}, slo);
    const size_t end = sweep.find(" |\n", sweep.find("| 3 |"));
    const size_t begin = sweep.rfind("| ", end - 1) + 2;
    return RunJson(run, slo)["slo"]["held"].dump() + " " + sweep.substr(begin, end - begin);
  };
  ReportedRun run = {.rate_per_s = 3};
  EXPECT_EQ(told(run), "null no request came");
  EXPECT_NE(RunTable(run, slo).find("says nothing of the limits"), std::string::npos);
  run.result.completed = 5;
  EXPECT_EQ(told(run), "true yes");
  EXPECT_TRUE(RunJson(run, slo)["ended_early"].is_null());
  run.ended_early = absl::CancelledError("interrupted");
  EXPECT_EQ(told(run), "null ended early");
  EXPECT_EQ(RunJson(run, slo)["ended_early"], "interrupted");
  EXPECT_NE(RunTable(run, slo).find("ended early        interrupted\n"), std::string::npos);
  run = {.rate_per_s = 3, .result = {.failed = 5}};
  EXPECT_EQ(told(run), "false no request succeeded");
}

// Who sorts results by latency must not find the run that failed first.
TEST(Report, WhatWasNotMeasuredHasNoNumber) {
  Recorder recorder({});
  recorder.Sent(0, 0.25);
  RequestRecord failed = {.planned_s = 0, .sent_s = 0.25, .end_s = 1};
  failed.failure = Failure{"http_400", "no"};
  recorder.Ended(failed);
  const ReportedRun run = {.rate_per_s = 3, .result = recorder.Finish(0)};
  const nlohmann::json latency = RunJson(run, {})["latency_ms"];
  for (const char* metric : {"ttft", "tpot", "itl", "e2e", "normalized"}) {
    EXPECT_EQ(latency[metric].dump(),
              R"({"count":0,"max":null,"mean":null,"p50":null,"p90":null,"p99":null})");
  }
  EXPECT_EQ(latency["send_lag"]["max"], 250);
  const std::string row = "          -          -          -          -          -\n";
  const std::string table = RunTable(run, {});
  EXPECT_NE(table.find("  TTFT                  " + row), std::string::npos) << table;
  EXPECT_NE(table.find("  normalized (per token)" + row), std::string::npos) << table;
  EXPECT_EQ(table.find("sent after plan        " + row), std::string::npos) << table;
  const std::string sweep = SweepTable({run}, {}, {});
  EXPECT_NE(sweep.find("| 3 | 0.00 | 0.0 | - | - | - | 0.00 | 1 | - |"), std::string::npos)
      << sweep;
}

// TPOT is of answers of more than one token.
TEST(Report, AMetricThatNoAnswerHasIsNotMeasuredThoughOthersAre) {
  Recorder recorder({});
  recorder.Sent(0, 0);
  recorder.Ended(Answered(0, 0.5, 1, 1, 1));
  const ReportedRun run = {.rate_per_s = 3, .result = recorder.Finish(0)};
  const nlohmann::json latency = RunJson(run, {})["latency_ms"];
  EXPECT_TRUE(latency["tpot"]["mean"].is_null());
  EXPECT_EQ(latency["ttft"]["count"], 1);
  EXPECT_TRUE(latency["ttft"]["mean"].is_number());
}

TEST(Report, ASweepNamesTheHighestRateHeld) {
  const std::string held = SweepTable({}, {.highest_rate_held = 5.5}, {});
  EXPECT_NE(held.find("highest rate held: 5.5 requests/s"), std::string::npos) << held;
  EXPECT_NE(SweepTable({}, {.lowest_rate_broken = 1}, {}).find("no rate was held"),
            std::string::npos);
  EXPECT_TRUE(SweepJson({})["highest_rate_held"].is_null());
}

TEST(Progress, TheLineSaysHowFarItIsWithinItsColumns) {
  const ProgressState state = {.elapsed_s = 2,
                               .completed = 5,
                               .failed = 1,
                               .in_flight = 3,
                               .output_tokens = 20,
                               .done_share = 0.5};
  const std::string numbers = " 50 %    2.0 s  5 done  1 failed  3 in flight  10 tok/s";
  EXPECT_EQ(ProgressLine(state, 68), "[#####.....] " + numbers);
  EXPECT_EQ(ProgressLine(state, 200), "[############............] " + numbers);
  EXPECT_EQ(ProgressLine(state, 61), numbers) << "too little is left for a bar";
  EXPECT_EQ(ProgressLine(state, 14), " 50 %    2.0 s");
  for (int columns = 0; columns < 100; ++columns) {
    EXPECT_LE(ProgressLine(state, columns).size(), static_cast<size_t>(columns));
  }
}

// --- metrics ---

TEST(Metrics, SumsSamplesOverLabelsAndPassesOverWhatIsNone) {
  const auto values = ReadPrometheusText(
      "# HELP a b\n# TYPE a gauge\na{x=\"1\"} 2\na{x=\"} 9\"} 3.5 1700000000\nb -1e3\n"
      "broken\nc{ 1\nd x\n\n");
  EXPECT_EQ(values, (std::map<std::string, MetricValue>{{"a", {5.5, 3.5}}, {"b", {-1000, -1000}}}));
}

TEST(Metrics, AreAddedUpUnlessTheHighestIsAskedFor) {
  EXPECT_EQ(ParseGauge("vllm:a").name, "vllm:a");
  EXPECT_EQ(ParseGauge("vllm:a").over_labels, OverLabels::kSum);
  EXPECT_EQ(ParseGauge("max:vllm:a").name, "vllm:a");
  EXPECT_EQ(ParseGauge("max:vllm:a").over_labels, OverLabels::kHighest);
  EXPECT_EQ(ParseGauge("max:vllm:a").shown_as, "max:vllm:a");
}

}  // namespace
}  // namespace refrain::loadgen
