#include "server/metrics/family_list.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <sstream>
#include <string_view>

namespace refrain::server::metrics {
namespace {

prometheus::ClientMetric::Histogram Cumulative(const Histogram& histogram, double most) {
  prometheus::ClientMetric::Histogram out;
  uint64_t count = 0;
  const std::span<const double> bounds = histogram.bounds();
  for (size_t i = 0; i <= bounds.size(); ++i) {
    count += histogram.count(i);
    if (i < bounds.size() && bounds[i] <= most) out.bucket.push_back({count, bounds[i]});
  }
  out.bucket.push_back({count, std::numeric_limits<double>::infinity()});
  out.sample_count = count;
  out.sample_sum = histogram.sum();
  return out;
}

// As Python's prometheus_client writes the number that these digits are: 5.0, 1e+06, 1.5e+06.
std::string WholeAsPython(std::string_view digits) {
  constexpr size_t kMostPlainDigits = 6;
  const bool negative = digits.starts_with('-');
  if (negative || digits.size() <= kMostPlainDigits) return std::string(digits) + ".0";
  const size_t last = digits.find_last_not_of('0');
  std::string out(digits.substr(0, 1));
  if (last > 0) out.append(".").append(digits.substr(1, last));
  // The 0 stands before two digits as well.
  return out.append("e+0").append(std::to_string(digits.size() - 1));
}

// Writes bounds as Python's prometheus_client and OpenMetrics do: le="1.0", where prometheus-cpp
// has le="1". Dashboards made for vLLM select them by that text, and sum by (le) over both servers.
// A bucket's bound is the last label of its line.
std::string WithWholeBoundsAsPython(std::string_view page) {
  std::string out;
  out.reserve(page.size() + page.size() / 16);
  while (!page.empty()) {
    const size_t line_end = std::min(page.find('\n'), page.size() - 1) + 1;
    const std::string_view line = page.substr(0, line_end);
    page.remove_prefix(line_end);
    const size_t close = line.rfind("\"} ");
    const size_t open = line.substr(0, close).rfind('"');
    const std::string_view before = line.substr(0, std::min(open, line.size()));
    const bool is_bound =
        close != line.npos && (before.ends_with(",le=") || before.ends_with("{le="));
    const std::string_view bound = is_bound ? line.substr(open + 1, close - open - 1) : "";
    if (!bound.empty() && bound.find_first_not_of("-0123456789") == bound.npos) {
      out.append(line.substr(0, open + 1)).append(WholeAsPython(bound)).append(line.substr(close));
    } else {
      out += line;
    }
  }
  return out;
}

}  // namespace

prometheus::MetricFamily* FamilyList::Add(std::string name, std::string help,
                                          prometheus::MetricType type) {
  prometheus::MetricFamily& family = families_.emplace_back();
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return &family;
}

std::vector<prometheus::ClientMetric::Label> FamilyList::Labels(const LabelList& own) const {
  std::vector<prometheus::ClientMetric::Label> labels;
  labels.reserve(common_.size() + own.size());
  for (const LabelList* list : {&common_, &own}) {
    for (const auto& [name, value] : *list) labels.push_back({name, value});
  }
  return labels;
}

void FamilyList::Gauge(std::string name, std::string help, const std::vector<Sample>& samples) {
  auto* family = Add(std::move(name), std::move(help), prometheus::MetricType::Gauge);
  for (const Sample& sample : samples) {
    prometheus::ClientMetric& metric = family->metric.emplace_back();
    metric.label = Labels(sample.labels);
    metric.gauge.value = sample.value;
  }
}

void FamilyList::Counter(std::string name, std::string help, const std::vector<Sample>& samples) {
  constexpr size_t kSuffix = sizeof("_total") - 1;
  const std::string base = name.substr(0, name.size() - kSuffix);
  auto* family = Add(std::move(name), std::move(help), prometheus::MetricType::Counter);
  std::vector<LabelList> labels;
  for (const Sample& sample : samples) {
    prometheus::ClientMetric& metric = family->metric.emplace_back();
    metric.label = Labels(sample.labels);
    metric.counter.value = sample.value;
    labels.push_back(sample.labels);
  }
  AddCreated(base, labels);
}

void FamilyList::AddHistograms(const std::string& name, std::string help,
                               const std::vector<HistogramSample>& samples, double most) {
  auto* family = Add(name, std::move(help), prometheus::MetricType::Histogram);
  std::vector<LabelList> labels;
  for (const HistogramSample& sample : samples) {
    prometheus::ClientMetric& metric = family->metric.emplace_back();
    metric.label = Labels(sample.labels);
    metric.histogram = Cumulative(*sample.histogram, most);
    labels.push_back(sample.labels);
  }
  AddCreated(name, labels);
}

void FamilyList::AddSummaries(std::string name, std::string help,
                              const std::vector<SummarySample>& samples) {
  auto* family = Add(std::move(name), std::move(help), prometheus::MetricType::Summary);
  for (const SummarySample& sample : samples) {
    prometheus::ClientMetric& metric = family->metric.emplace_back();
    metric.label = Labels(sample.labels);
    metric.summary.sample_count = sample.count;
    metric.summary.sample_sum = sample.sum;
  }
}

void FamilyList::AddCreated(const std::string& name, const std::vector<LabelList>& labels) {
  if (!created_unix_s_.has_value()) return;
  std::vector<Sample> samples;
  for (const LabelList& own : labels) samples.push_back({*created_unix_s_, own});
  Gauge(name + "_created", "When " + name + " began to count, in seconds since 1970.", samples);
}

std::string FamilyList::Text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families_);
  return WithWholeBoundsAsPython(out.view());
}

}  // namespace refrain::server::metrics
