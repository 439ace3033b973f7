#include "server/metrics/http_metrics.h"

#include <algorithm>

#include "server/metrics/family_list.h"

namespace refrain::server::metrics {
namespace {

constexpr double kDuration[] = {.1, .5, 1};
constexpr double kFineDuration[] = {.01, .025, .05, .075, .1,  .25, .5,  .75, 1,  1.5, 2,
                                    2.5, 3,    3.5, 4,    4.5, 5,   7.5, 10,  30, 60};

constexpr double kHandover[] = {10e-6,  20e-6,  30e-6,  50e-6,  75e-6, 100e-6, 150e-6,
                                200e-6, 300e-6, 500e-6, 750e-6, 1e-3,  2e-3,   5e-3,
                                10e-3,  20e-3,  50e-3,  .1,     .25,   .5,     1};

constexpr std::string_view kUnmatched = "none";

// Asked by machines all the time; they would drown what users see.
bool IsProbe(std::string_view handler) {
  constexpr std::string_view kProbes[] = {"/health", "/live",  "/metrics",
                                          "/ping",   "/ready", "/version"};
  return std::find(std::begin(kProbes), std::end(kProbes), handler) != std::end(kProbes);
}

std::string_view MethodLabel(std::string_view method) {
  constexpr std::string_view kKnown[] = {"DELETE", "GET",  "HEAD", "OPTIONS",
                                         "PATCH",  "POST", "PUT"};
  const auto found = std::find(std::begin(kKnown), std::end(kKnown), method);
  return found != std::end(kKnown) ? *found : "other";
}

std::string StatusGroup(int status) { return std::to_string(status / 100) + "xx"; }

}  // namespace

HttpMetrics::HttpMetrics() : duration_(kFineDuration), token_to_socket_(kHandover) {}

void HttpMetrics::Count(const http::Exchange& exchange) {
  const std::string handler(exchange.route.empty() ? kUnmatched : exchange.route);
  const std::string method(MethodLabel(exchange.method));
  const bool probe = IsProbe(handler);
  if (!probe) duration_.Observe(exchange.seconds);
  responses_.Add({handler, std::to_string(exchange.status), std::string(exchange.principal)});
  if (probe) return;
  requests_.Add({handler, method, StatusGroup(exchange.status)});
  MutexLock lock(mutex_);
  ByHandler& sizes = handlers_[handler];
  ++sizes.requests;
  sizes.request_bytes += exchange.request_body_bytes;
  sizes.response_bytes += exchange.response_bytes;
  std::unique_ptr<Histogram>& duration = durations_[{handler, method}];
  if (duration == nullptr) duration = std::make_unique<Histogram>(kDuration);
  duration->Observe(exchange.seconds);
}

void HttpMetrics::Describe(const ShownKeys& shown, FamilyList* families) const {
  std::vector<FamilyList::Sample> requests, responses;
  requests_.ForEach([&](const Labels3& labels, uint64_t count) {
    requests.push_back({static_cast<double>(count),
                        {{"handler", std::get<0>(labels)},
                         {"method", std::get<1>(labels)},
                         {"status", std::get<2>(labels)}}});
  });
  std::map<Labels3, uint64_t> by_shown_key;
  responses_.ForEach([&](const Labels3& labels, uint64_t count) {
    by_shown_key[{std::get<0>(labels), std::get<1>(labels), shown(std::get<2>(labels))}] += count;
  });
  for (const auto& [labels, count] : by_shown_key) {
    responses.push_back({static_cast<double>(count),
                         {{"handler", std::get<0>(labels)},
                          {"code", std::get<1>(labels)},
                          {"key", std::get<2>(labels)}}});
  }
  std::vector<FamilyList::SummarySample> request_bytes, response_bytes;
  std::vector<FamilyList::HistogramSample> durations;
  {
    MutexLock lock(mutex_);
    for (const auto& [handler, sizes] : handlers_) {
      const LabelList labels = {{"handler", handler}};
      request_bytes.push_back({sizes.requests, static_cast<double>(sizes.request_bytes), labels});
      response_bytes.push_back({sizes.requests, static_cast<double>(sizes.response_bytes), labels});
    }
    for (const auto& [labels, histogram] : durations_) {
      durations.push_back(
          {histogram.get(), {{"handler", labels.first}, {"method", labels.second}}});
    }
  }
  families->Counter("http_requests_total", "HTTP requests by route, method and group of status.",
                    requests);
  families->AddSummaries("http_request_size_bytes", "Bodies of requests.", request_bytes);
  families->AddSummaries("http_response_size_bytes", "Answers as sent, with their headers.",
                         response_bytes);
  families->AddHistogram("http_request_duration_highr_seconds",
                         "From a whole request to its answer's end, in fine buckets.", duration_);
  families->AddHistograms("http_request_duration_seconds",
                          "From a whole request to its answer's end, by route and method.",
                          durations);
  families->AddHistogram(
      "refrain_token_to_socket_seconds",
      "From the sampling of a streamed token until its event or message was handed "
      "to the socket; of those that go out together the oldest one's.",
      token_to_socket_);
  families->Counter("refrain_http_responses_total",
                    "HTTP answers by route, exact status and the caller's key; probes too.",
                    responses);
}

}  // namespace refrain::server::metrics
