#include "tools/loadgen/report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace refrain::loadgen {
namespace {

using Json = nlohmann::json;

double PerSecond(int64_t count, const RunResult& result) {
  return result.duration_s > 0 ? static_cast<double>(count) / result.duration_s : 0;
}

std::string SummaryRow(const char* name, const Summary& summary) {
  std::string row = absl::StrFormat("  %-22s", name);
  for (const double value : {summary.mean, summary.p50, summary.p90, summary.p99, summary.max}) {
    absl::StrAppendFormat(&row, " %10s", summary.count == 0 ? "-" : absl::StrFormat("%.2f", value));
  }
  return row + "\n";
}

Json SummaryJson(const Summary& summary) {
  const auto measured = [&](double value) { return summary.count == 0 ? Json() : Json(value); };
  return {{"count", summary.count},       {"mean", measured(summary.mean)},
          {"p50", measured(summary.p50)}, {"p90", measured(summary.p90)},
          {"p99", measured(summary.p99)}, {"max", measured(summary.max)}};
}

constexpr std::array<const char*, kMetrics> kMetricTitles = {"TTFT", "TPOT", "E2E",
                                                             "normalized (per token)"};

// Of a result that has them.
double CachedPercent(const RunResult& result) {
  if (result.input_tokens_of_those == 0) return 0;
  return 100.0 * static_cast<double>(*result.cached_tokens) /
         static_cast<double>(result.input_tokens_of_those);
}

std::string CachedText(const RunResult& result) {
  return absl::StrFormat("%d of %d input tokens (%.1f %%)", *result.cached_tokens,
                         result.input_tokens_of_those, CachedPercent(result));
}

std::string ShortText(const RunResult& result) {
  return absl::StrFormat("%d of %d answers are shorter than asked for", result.short_answers,
                         result.completed);
}

// Empty where all answers were to be of the length asked for, and are known to be.
std::string LengthsText(const ReportedRun& run) {
  const RunResult& result = run.result;
  if (!run.exact_lengths) return "";
  std::string text = result.short_answers > 0 ? ShortText(result) : "";
  if (result.unknown_lengths > 0) {
    absl::StrAppendFormat(&text, "%s%d of %d answers do not say how long they are",
                          text.empty() ? "" : "; ", result.unknown_lengths, result.completed);
  }
  return text;
}

Json ShortJson(const ReportedRun& run) {
  const RunResult& result = run.result;
  const bool none_is_known = result.short_answers == 0 && result.unknown_lengths > 0;
  if (!run.exact_lengths || none_is_known) return {};
  return result.short_answers;
}

std::string HeldText(const ReportedRun& run) {
  const std::optional<bool> held = Held(run);
  if (!held.has_value()) return run.ended_early.ok() ? "no request came" : "ended early";
  if (*held) return "yes";
  return run.broken_limits.empty() ? "no request succeeded" : run.broken_limits.front();
}

}  // namespace

std::optional<bool> Held(const ReportedRun& run) {
  if (!run.ended_early.ok() || run.result.came() == 0) return std::nullopt;
  return run.result.completed > 0 && run.broken_limits.empty();
}

std::string RunTable(const ReportedRun& run, const Slo& slo) {
  const RunResult& result = run.result;
  std::string text;
  if (run.rate_per_s.has_value()) {
    absl::StrAppendFormat(&text, "asked for          %10.2f requests/s\n", *run.rate_per_s);
  }
  absl::StrAppendFormat(&text, "requests           %10d completed, %d failed, in %.2f s\n",
                        result.completed, result.failed, result.duration_s);
  if (!run.ended_early.ok()) {
    absl::StrAppend(&text, "ended early        ", run.ended_early.message(), "\n");
  }
  if (result.resent > 0) {
    absl::StrAppendFormat(&text,
                          "sent again         %10d times: the server had closed the connection\n",
                          result.resent);
  }
  if (const std::string lengths = LengthsText(run); !lengths.empty()) {
    absl::StrAppend(&text, "too short          ", lengths, "\n");
  }
  absl::StrAppendFormat(
      &text, "throughput         %10.2f requests/s, %.1f input tok/s, %.1f output tok/s\n",
      PerSecond(result.completed, result), PerSecond(result.input_tokens, result),
      PerSecond(result.output_tokens, result));
  if (!slo.limits.empty()) {
    absl::StrAppendFormat(&text, "goodput            %10.2f requests/s within the limits\n",
                          PerSecond(result.good, result));
  }
  absl::StrAppendFormat(&text, "in flight at most  %10d\n", result.peak_in_flight);
  if (result.cached_tokens.has_value()) {
    absl::StrAppendFormat(&text, "found in cache     %s\n", CachedText(result));
  }
  for (const auto& [name, value] : run.server_peaks) {
    absl::StrAppendFormat(&text, "peak of %s: %.12g\n", name, value);
  }
  absl::StrAppendFormat(&text, "\n  %-22s %10s %10s %10s %10s %10s\n", "ms, from planned arrival",
                        "mean", "p50", "p90", "p99", "max");
  for (size_t metric = 0; metric < kMetrics; ++metric) {
    text += SummaryRow(kMetricTitles[metric], result.metrics[metric]);
    if (static_cast<Metric>(metric) == Metric::kTpot) text += SummaryRow("ITL", result.itl);
  }
  text += SummaryRow("sent after plan", result.send_lag);
  for (const auto& [kind, failures] : result.failures) {
    absl::StrAppendFormat(&text, "failed: %-18s %6d  %s\n", kind, failures.count, failures.example);
  }
  for (const std::string& limit : run.broken_limits) {
    absl::StrAppend(&text, "not held: ", limit, "\n");
  }
  if (!slo.limits.empty() && result.came() == 0) {
    absl::StrAppend(&text, "no request came: this says nothing of the limits\n");
  }
  return text;
}

std::string SweepTable(const std::vector<ReportedRun>& runs, const ReportedSweep& sweep,
                       const Slo& slo) {
  const auto statistic = [&](const ReportedRun& run, Metric metric, int digits) -> std::string {
    const Summary& summary = run.result.metrics[static_cast<size_t>(metric)];
    if (summary.count == 0) return "-";
    return absl::StrFormat("%.*f", digits, ValueOf(summary, slo.statistic));
  };
  const char* name = StatisticName(slo.statistic);
  std::string text = absl::StrFormat(
      "| requests/s asked | done | output tok/s | TTFT %s ms | TPOT %s ms | normalized %s ms | "
      "goodput | failed | found in cache | held |\n|---|---|---|---|---|---|---|---|---|---|\n",
      name, name, name);
  for (const ReportedRun& run : runs) {
    absl::StrAppendFormat(
        &text, "| %.4g | %.2f | %.1f | %s | %s | %s | %.2f | %d | %s | %s |\n",
        run.rate_per_s.value_or(0), PerSecond(run.result.completed, run.result),
        PerSecond(run.result.output_tokens, run.result), statistic(run, Metric::kTtft, 1),
        statistic(run, Metric::kTpot, 2), statistic(run, Metric::kNormalized, 2),
        PerSecond(run.result.good, run.result), run.result.failed,
        run.result.cached_tokens.has_value() ? absl::StrFormat("%.1f %%", CachedPercent(run.result))
                                             : "-",
        HeldText(run));
  }
  for (const ReportedRun& run : runs) {
    const std::string lengths = LengthsText(run);
    if (lengths.empty()) continue;
    absl::StrAppendFormat(&text, "\nat %.4g requests/s %s\n", run.rate_per_s.value_or(0), lengths);
  }
  text += sweep.highest_rate_held.has_value()
              ? absl::StrFormat("\nhighest rate held: %.4g requests/s", *sweep.highest_rate_held)
              : "\nno rate was held";
  text += sweep.lowest_rate_broken.has_value()
              ? absl::StrFormat("; lowest not held: %.4g\n", *sweep.lowest_rate_broken)
              : "; none was too much\n";
  return text;
}

Json RunJson(const ReportedRun& run, const Slo& slo) {
  const RunResult& result = run.result;
  Json json = {
      {"rate_per_s", run.rate_per_s.has_value() ? Json(*run.rate_per_s) : Json()},
      {"duration_s", result.duration_s},
      {"completed", result.completed},
      {"failed", result.failed},
      {"resent", result.resent},
      {"peak_in_flight", result.peak_in_flight},
      {"input_tokens", result.input_tokens},
      {"output_tokens", result.output_tokens},
      {"short_answers", ShortJson(run)},
      {"cached_tokens", result.cached_tokens.has_value() ? Json(*result.cached_tokens) : Json()},
      {"throughput",
       {{"requests_per_s", PerSecond(result.completed, result)},
        {"input_tokens_per_s", PerSecond(result.input_tokens, result)},
        {"output_tokens_per_s", PerSecond(result.output_tokens, result)}}},
      {"server_peaks", run.server_peaks},
      {"ended_early", run.ended_early.ok() ? Json() : Json(std::string(run.ended_early.message()))},
      {"failures", Json::object()},
      {"latency_ms", Json::object()}};
  for (size_t metric = 0; metric < kMetrics; ++metric) {
    json["latency_ms"][kMetricNames[metric]] = SummaryJson(result.metrics[metric]);
  }
  json["latency_ms"]["itl"] = SummaryJson(result.itl);
  json["latency_ms"]["send_lag"] = SummaryJson(result.send_lag);
  for (const auto& [kind, failures] : result.failures) {
    json["failures"][kind] = {{"count", failures.count}, {"example", failures.example}};
  }
  if (slo.limits.empty()) return json;
  Json limits = Json::object();
  for (const SloLimit& limit : slo.limits) {
    limits[kMetricNames[static_cast<size_t>(limit.metric)]] = limit.most_ms;
  }
  const std::optional<bool> held = Held(run);
  json["slo"] = {{"limits_ms", limits},
                 {"statistic", StatisticName(slo.statistic)},
                 {"held", held.has_value() ? Json(*held) : Json()},
                 {"broken", run.broken_limits},
                 {"good", result.good},
                 {"goodput_requests_per_s", PerSecond(result.good, result)}};
  return json;
}

Json SweepJson(const ReportedSweep& sweep) {
  const auto or_null = [](const std::optional<double>& value) {
    return value.has_value() ? Json(*value) : Json();
  };
  return {{"highest_rate_held", or_null(sweep.highest_rate_held)},
          {"lowest_rate_broken", or_null(sweep.lowest_rate_broken)}};
}

}  // namespace refrain::loadgen
