#ifndef REFRAIN_TOOLS_LOADGEN_METRICS_WATCH_H_
#define REFRAIN_TOOLS_LOADGEN_METRICS_WATCH_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/loadgen/http_backend.h"

namespace refrain::loadgen {

// Sums of the samples of each metric in Prometheus' text format, over its labels. Lines that are of
// another form are passed over.
std::map<std::string, double> ReadPrometheusText(std::string_view text);

struct MetricsWatchOptions {
  HttpTarget target;
  std::string api_key;
  double interval_s = 0.2;
  std::vector<std::string> names;  // gauges to watch
};

// The gauges that servers tell their batch and KV cache by: ours, vLLM's, SGLang's, llama-server's.
std::vector<std::string> UsualGauges();

// Reads /metrics again and again on a thread of its own, and keeps the highest value of each gauge
// that is there. A server without /metrics has none; nothing fails.
class MetricsWatch {
 public:
  explicit MetricsWatch(MetricsWatchOptions options);
  ~MetricsWatch();
  MetricsWatch(const MetricsWatch&) = delete;

  // Stops, reads a last time, and gives the peaks by name.
  std::map<std::string, double> Finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_METRICS_WATCH_H_
