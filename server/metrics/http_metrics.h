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
#include "server/metrics/shown_keys.h"

namespace refrain::server::metrics {

class FamilyList;

// Counts HTTP exchanges under the names and groupings of prometheus_fastapi_instrumentator, which
// vLLM uses, and by exact status and key under one of ours. Probes and scrapes (/health, /metrics
// and so on) are left out of the former, as there. Any thread; the mutex is held for a few counts.
// Labels come from routes, methods and key names, never from what clients make up.
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
  mutable Mutex mutex_;
  std::map<Labels3, uint64_t> requests_ REFRAIN_GUARDED_BY(mutex_);   // handler, method, 2xx
  std::map<Labels3, uint64_t> responses_ REFRAIN_GUARDED_BY(mutex_);  // handler, code, key
  std::map<std::string, ByHandler> handlers_ REFRAIN_GUARDED_BY(mutex_);
  // By handler and method.
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Histogram>> durations_
      REFRAIN_GUARDED_BY(mutex_);
};

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_HTTP_METRICS_H_
