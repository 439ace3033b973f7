#ifndef REFRAIN_SERVER_METRICS_METRICS_H_
#define REFRAIN_SERVER_METRICS_METRICS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/engine_observer.h"
#include "server/connection_counts.h"
#include "server/http/exchange.h"
#include "server/http/router.h"
#include "server/metrics/engine_metrics.h"
#include "server/metrics/grpc_metrics.h"
#include "server/metrics/http_metrics.h"
#include "server/metrics/shown_keys.h"
#include "server/unread_answers.h"

namespace refrain::server::metrics {

class FamilyList;

// What a Prometheus server scrapes: GET /metrics, in the text format 0.0.4. It answers while the
// model loads too, then without what is labelled by the model's name. It does not own the engine:
// whoever does ends the HTTP server first.
//
// Any thread. A page is made from counters that are read without stopping anybody, so numbers of
// one page may differ by what happened meanwhile. Cannot fail.
class Metrics {
 public:
  struct Options {
    std::string version;
    CacheConfig cache;
    std::function<int64_t()> dropped_log_lines;   // RequestLog's; empty where there is none
    std::shared_ptr<const UnreadAnswers> unread;  // null: nobody counts them
  };

  explicit Metrics(Options options);

  void AddRoutes(http::Router* router);
  void SetEngine(const engine::Engine* engine) { engine_ = engine; }  // loaded from now on
  engine::EngineObserver* engine_observer() { return &engine_metrics_; }
  // For the front ends to count in.
  const std::shared_ptr<ConnectionCounts>& http_connections() const { return http_connections_; }
  const std::shared_ptr<ConnectionCounts>& grpc_connections() const { return grpc_connections_; }
  void CountCall(const rpc::CallRecord& call) { grpc_metrics_.Count(call); }
  void CountExchange(const http::Exchange& exchange) { http_metrics_.Count(exchange); }
  void CountTokenToSocket(double seconds) { http_metrics_.CountTokenToSocket(seconds); }

  std::string Page(const ShownKeys& shown = {}) const;

 private:
  void DescribeConnections(FamilyList* families) const;

  const Options options_;
  const double created_unix_s_;
  std::atomic<const engine::Engine*> engine_{nullptr};
  const std::shared_ptr<ConnectionCounts> http_connections_ = std::make_shared<ConnectionCounts>();
  const std::shared_ptr<ConnectionCounts> grpc_connections_ = std::make_shared<ConnectionCounts>();
  EngineMetrics engine_metrics_;
  HttpMetrics http_metrics_;
  GrpcMetrics grpc_metrics_;
};

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_METRICS_H_
