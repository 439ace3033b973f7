#ifndef REFRAIN_TOOLS_LOADGEN_METRICS_WATCH_H_
#define REFRAIN_TOOLS_LOADGEN_METRICS_WATCH_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/loadgen/http_backend.h"

namespace refrain::loadgen {

// The samples of one metric, over its labels.
struct MetricValue {
  double sum = 0;
  double highest = 0;

  bool operator==(const MetricValue&) const = default;
};

// By name, from Prometheus' text format. Lines that are of another form are passed over.
std::map<std::string, MetricValue> ReadPrometheusText(std::string_view text);

// What counts of a gauge with several samples, one for each engine of a server say: requests add
// up, shares and ratios do not.
enum class OverLabels { kSum, kHighest };

struct Gauge {
  std::string name;
  OverLabels over_labels = OverLabels::kSum;
  std::string shown_as;  // its peak's name
};

// NAME, or max:NAME for the highest sample.
Gauge ParseGauge(std::string_view text);

// The gauges that servers tell their batch and KV cache by: ours, vLLM's, SGLang's, llama-server's.
std::vector<Gauge> UsualGauges();

struct MetricsWatchOptions {
  HttpTarget target;
  std::string api_key;
  double interval_s = 0.2;
  std::vector<Gauge> gauges;
};

// Reads /metrics again and again on a thread of its own, and keeps the highest value of each gauge
// that is there. A server without /metrics has none; nothing fails.
class MetricsWatch {
 public:
  explicit MetricsWatch(MetricsWatchOptions options);
  ~MetricsWatch();
  MetricsWatch(const MetricsWatch&) = delete;

  // Stops, reads a last time, and gives the peaks by `shown_as`. A few seconds at most where the
  // server does not answer.
  std::map<std::string, double> Finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_METRICS_WATCH_H_
