#ifndef REFRAIN_SERVER_METRICS_GRPC_METRICS_H_
#define REFRAIN_SERVER_METRICS_GRPC_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "engine/annotated_mutex.h"
#include "server/grpc/call_record.h"
#include "server/metrics/histogram.h"
#include "server/metrics/labelled_counts.h"
#include "server/metrics/shown_keys.h"

namespace refrain::server::metrics {

class FamilyList;

// Counts gRPC calls under the names of go-grpc-prometheus and its kin, and by the caller's key
// under one of ours. Any thread; locks are held for a few counts, also while a page is made. Labels
// come from our own services, status codes and key names, never from what clients make up.
class GrpcMetrics {
 public:
  void Count(const rpc::CallRecord& call);
  void Describe(const ShownKeys& shown, FamilyList* families) const;

 private:
  struct Method {
    bool server_streams = false;
    std::map<absl::StatusCode, uint64_t> handled;
    std::unique_ptr<Histogram> seconds;
  };

  using CallLabels = std::tuple<std::string_view, absl::StatusCode, std::string>;

  mutable Mutex mutex_;
  std::map<std::string_view, Method> methods_ REFRAIN_GUARDED_BY(mutex_);  // by path
  LabelledCounts<CallLabels> calls_;                                       // path, code, key
};

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_GRPC_METRICS_H_
