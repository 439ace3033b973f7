#ifndef REFRAIN_SERVER_METRICS_HTTP_METRICS_H_
#define REFRAIN_SERVER_METRICS_HTTP_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/annotated_mutex.h"
#include "server/http/exchange.h"
#include "server/metrics/histogram.h"
#include "server/metrics/labelled_counts.h"
#include "server/metrics/shown_keys.h"

namespace refrain::server::metrics {

class FamilyList;

// Counts HTTP exchanges under the names and groupings of prometheus_fastapi_instrumentator, which
// vLLM uses, and by exact status and key under one of ours. Probes and scrapes (/health, /metrics
// and so on) are left out of the former, as there. Any thread; locks are held for a few counts,
// also while a page is made: I/O threads count. Labels come from routes, methods and key names,
// never from what clients make up.
class HttpMetrics {
 public:
  HttpMetrics();

  void Count(const http::Exchange& exchange);
  // From a token's sampling until its bytes were handed to the socket.
  void CountTokenToSocket(double seconds) { token_to_socket_.Observe(seconds); }
  void Describe(const ShownKeys& shown, FamilyList* families) const;

 private:
  struct ByHandler {
    uint64_t requests = 0;
    uint64_t request_bytes = 0;
    uint64_t response_bytes = 0;
  };
  using Labels3 = std::tuple<std::string, std::string, std::string>;

  Histogram duration_;  // over all, in finer buckets
  Histogram token_to_socket_;
  LabelledCounts<Labels3> requests_;   // handler, method, 2xx
  LabelledCounts<Labels3> responses_;  // handler, code, key
  mutable Mutex mutex_;                // of what has a few tens of series, whoever calls
  std::map<std::string, ByHandler> handlers_ REFRAIN_GUARDED_BY(mutex_);
  // By handler and method.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Histogram>> durations_
      REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_HTTP_METRICS_H_
