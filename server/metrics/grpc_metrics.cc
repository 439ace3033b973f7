#include "server/metrics/grpc_metrics.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "server/metrics/family_list.h"

namespace refrain::server::metrics {
namespace {

// Those that the Prometheus clients of most languages begin with, up to what a long answer takes.
constexpr double kHandling[] = {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60};

// As Go writes codes, whose names these are: "InvalidArgument".
std::string CodeLabel(absl::StatusCode code) {
  if (code == absl::StatusCode::kOk) return "OK";
  if (code == absl::StatusCode::kCancelled) return "Canceled";
  std::string label;
  bool begins = true;
  for (const char c : absl::StatusCodeToString(code)) {
    if (c != '_') label.push_back(begins ? c : absl::ascii_tolower(static_cast<unsigned char>(c)));
    begins = c == '_';
  }
  return label;
}

// Of "/refrain.v1.Inference/Generate".
LabelList LabelsOf(std::string_view path, bool server_streams) {
  const size_t slash = path.rfind('/');
  return {{"grpc_type", server_streams ? "server_stream" : "unary"},
          {"grpc_service", std::string(path.substr(1, slash - 1))},
          {"grpc_method", std::string(path.substr(slash + 1))}};
}

}  // namespace

void GrpcMetrics::Count(const rpc::CallRecord& call) {
  calls_.Add({call.path, call.code, call.principal});
  MutexLock lock(mutex_);
  Method& method = methods_[call.path];
  method.server_streams = call.server_streams;
  ++method.handled[call.code];
  if (method.seconds == nullptr) method.seconds = std::make_unique<Histogram>(kHandling);
  method.seconds->Observe(call.seconds);
}

void GrpcMetrics::Describe(const ShownKeys& shown, FamilyList* families) const {
  std::vector<FamilyList::Sample> handled, calls;
  std::vector<FamilyList::HistogramSample> seconds;
  {
    MutexLock lock(mutex_);
    for (const auto& [path, method] : methods_) {
      const LabelList labels = LabelsOf(path, method.server_streams);
      seconds.push_back({method.seconds.get(), labels});
      for (const auto& [code, count] : method.handled) {
        LabelList with_code = labels;
        with_code.emplace_back("grpc_code", CodeLabel(code));
        handled.push_back({static_cast<double>(count), std::move(with_code)});
      }
    }
  }
  std::map<CallLabels, uint64_t> by_shown_key;
  calls_.ForEach([&](const CallLabels& labels, uint64_t count) {
    by_shown_key[{std::get<0>(labels), std::get<1>(labels), shown(std::get<2>(labels))}] += count;
  });
  for (const auto& [key, count] : by_shown_key) {
    calls.push_back({static_cast<double>(count),
                     {{"method", std::string(std::get<0>(key))},
                      {"code", absl::StatusCodeToString(std::get<1>(key))},
                      {"key", std::get<2>(key)}}});
  }
  families->Counter("grpc_server_handled_total", "gRPC calls that ended, by method and code.",
                    handled);
  families->AddHistograms("grpc_server_handling_seconds",
                          "From a gRPC call's request to its end, streams too.", seconds);
  families->Counter("refrain_grpc_calls_total",
                    "gRPC calls that ended, by method, code and the caller's key.", calls);
}

}  // namespace refrain::server::metrics
