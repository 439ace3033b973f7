#ifndef REFRAIN_SERVER_METRICS_FAMILY_LIST_H_
#define REFRAIN_SERVER_METRICS_FAMILY_LIST_H_

#include <prometheus/metric_family.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/metrics/histogram.h"

namespace refrain::server::metrics {

using LabelList = std::vector<std::pair<std::string, std::string>>;

// Collects the families of one page. Inside metrics/ only, one thread.
class FamilyList {
 public:
  struct Sample {
    double value = 0;
    LabelList labels;  // beside the common ones
  };
  struct HistogramSample {
    const Histogram* histogram = nullptr;
    LabelList labels;
  };
  struct SummarySample {
    uint64_t count = 0;
    double sum = 0;
    LabelList labels;
  };

  // The families that follow have these labels; counters and histograms among them get a gauge
  // X_created where a time is given, as Python's prometheus_client does.
  void SetCommon(LabelList labels, std::optional<double> created_unix_s) {
    common_ = std::move(labels);
    created_unix_s_ = created_unix_s;
  }

  void Gauge(std::string name, std::string help, double value) {
    Gauge(std::move(name), std::move(help), {Sample{value, {}}});
  }
  void Gauge(std::string name, std::string help, const std::vector<Sample>& samples);
  // `name` ends in _total.
  void Counter(std::string name, std::string help, double value) {
    Counter(std::move(name), std::move(help), {Sample{value, {}}});
  }
  void Counter(std::string name, std::string help, const std::vector<Sample>& samples);
  // Bounds above `most` are left out.
  void AddHistogram(const std::string& name, std::string help, const Histogram& histogram,
                    double most = std::numeric_limits<double>::infinity()) {
    AddHistograms(name, std::move(help), {HistogramSample{&histogram, {}}}, most);
  }
  void AddHistograms(const std::string& name, std::string help,
                     const std::vector<HistogramSample>& samples,
                     double most = std::numeric_limits<double>::infinity());
  // Without quantiles.
  void AddSummaries(std::string name, std::string help, const std::vector<SummarySample>& samples);

  // The page so far, in the text format 0.0.4; bounds are spelled as by Python: le="1.0".
  std::string Text() const;

 private:
  prometheus::MetricFamily* Add(std::string name, std::string help, prometheus::MetricType type);
  std::vector<prometheus::ClientMetric::Label> Labels(const LabelList& own) const;
  void AddCreated(const std::string& name, const std::vector<LabelList>& labels);

  LabelList common_;
  std::optional<double> created_unix_s_;
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_FAMILY_LIST_H_
