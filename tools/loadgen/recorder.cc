#include "tools/loadgen/recorder.h"

#include <algorithm>
#include <utility>

namespace refrain::loadgen {
namespace {

constexpr double kMsPerS = 1e3;
constexpr double kHistogramUnitMs = 1e-3;

size_t Index(Metric metric) { return static_cast<size_t>(metric); }

}  // namespace

RequestValues ValuesOf(const RequestRecord& record) {
  RequestValues values;
  const double e2e_ms = (record.end_s - record.planned_s) * kMsPerS;
  values.ms[Index(Metric::kTtft)] = (record.first_token_s - record.planned_s) * kMsPerS;
  values.ms[Index(Metric::kE2e)] = e2e_ms;
  values.ms[Index(Metric::kNormalized)] =
      e2e_ms / static_cast<double>(std::max<int64_t>(1, record.output_tokens));
  if (record.output_tokens > 1 && record.last_token_s > record.first_token_s) {
    values.has_tpot = true;
    values.ms[Index(Metric::kTpot)] = (record.last_token_s - record.first_token_s) * kMsPerS /
                                      static_cast<double>(record.output_tokens - 1);
  }
  return values;
}

Recorder::Recorder(Slo slo)
    : slo_(std::move(slo)), itl_(kHistogramUnitMs), send_lag_(kHistogramUnitMs) {}

void Recorder::Sent(double planned_s, double sent_s) {
  send_lag_.Add((sent_s - planned_s) * kMsPerS);
  result_.peak_in_flight = std::max(result_.peak_in_flight, ++in_flight_);
}

void Recorder::Gap(double gap_s, int32_t tokens) {
  itl_.Add(gap_s * kMsPerS);
  AddTogether(tokens);
}

// Tokens that come together come at once.
void Recorder::AddTogether(int32_t tokens) {
  for (int32_t i = 1; i < tokens; ++i) itl_.Add(0);
}

void Recorder::Ended(const RequestRecord& record) {
  --in_flight_;
  last_end_s_ = std::max(last_end_s_, record.end_s);
  if (record.resent) ++result_.resent;
  if (record.failure.has_value()) return AddFailure(*record.failure);
  ++result_.completed;
  result_.input_tokens += record.input_tokens;
  result_.output_tokens += record.output_tokens;
  if (!record.is_short.has_value()) ++result_.unknown_lengths;
  if (record.is_short.value_or(false)) ++result_.short_answers;
  if (record.cached_tokens.has_value()) {
    result_.cached_tokens = result_.cached_tokens.value_or(0) + *record.cached_tokens;
    result_.input_tokens_of_those += record.input_tokens;
  }
  const RequestValues values = ValuesOf(record);
  for (size_t metric = 0; metric < kMetrics; ++metric) {
    if (metric == Index(Metric::kTpot) && !values.has_tpot) continue;
    metrics_[metric].Add(values.ms[metric]);
  }
  if (IsGood(slo_, values.ms)) ++result_.good;
}

void Recorder::NeverSent(const RequestRecord& record) {
  last_end_s_ = std::max(last_end_s_, record.end_s);
  AddFailure(*record.failure);
}

void Recorder::AddFailure(const Failure& failure) {
  ++result_.failed;
  FailureCount& failures = result_.failures[failure.kind];
  if (failures.count++ == 0) failures.example = failure.message;
}

RunResult Recorder::Finish(double begin_s) const {
  RunResult result = result_;
  result.duration_s = std::max(0.0, last_end_s_ - begin_s);
  for (size_t metric = 0; metric < kMetrics; ++metric) {
    result.metrics[metric] = metrics_[metric].Summarize();
  }
  result.itl = itl_.Summarize();
  result.send_lag = send_lag_.Summarize();
  return result;
}

}  // namespace refrain::loadgen
