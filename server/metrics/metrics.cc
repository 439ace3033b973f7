#include "server/metrics/metrics.h"

#include <chrono>
#include <utility>
#include <vector>

#include "server/metrics/family_list.h"
#include "server/metrics/process_metrics.h"

namespace refrain::server::metrics {

Metrics::Metrics(Options options)
    : options_(std::move(options)),
      created_unix_s_(
          std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
              .count()) {}

void Metrics::AddRoutes(http::Router* router) {
  router->Add({"GET", "/metrics",
               [this](const http::Request& request) {
                 const http::RequestNotes* const notes = request.notes.get();
                 const bool all = notes == nullptr || notes->sees_all_keys;
                 return http::MakeReply(
                     {.content_type = "text/plain; version=0.0.4; charset=utf-8"},
                     Page(all ? ShownKeys() : ShownKeys(notes->principal)));
               },
               // A page takes a few milliseconds, and a scraper has little patience.
               http::HandlerSpeed::kProbe});
}

std::string Metrics::Page(const ShownKeys& shown) const {
  FamilyList families;
  const engine::Engine* const engine = engine_;
  if (engine != nullptr) {
    const engine::EngineStats stats = engine->stats();
    const engine::ModelInfo& model = engine->model();
    families.SetCommon({{"model_name", model.served_name}, {"engine", "0"}}, created_unix_s_);
    engine_metrics_.DescribeVllm(stats, model, options_.cache, &families);
    families.SetCommon({}, std::nullopt);
    engine_metrics_.DescribeRefrain(stats, &families);
  }
  families.Gauge("refrain_build_info", "The version that runs; always 1.",
                 {{1, {{"version", options_.version}}}});
  families.Gauge("refrain_model_loaded", "1 once the model is loaded, 0 while it loads.",
                 engine != nullptr ? 1 : 0);
  families.Gauge("refrain_engine_healthy",
                 "1 while the engine gets on, 0 while loading, stalled or dead.",
                 engine != nullptr && engine->health().ok() ? 1 : 0);
  families.Counter(
      "refrain_request_log_dropped_lines_total",
      "Lines that are missing in the request log: the disk was too slow, or full.",
      options_.dropped_log_lines ? static_cast<double>(options_.dropped_log_lines()) : 0);
  const UnreadAnswers* const unread = options_.unread.get();
  families.Gauge("refrain_unread_answer_bytes",
                 "Memory of generated tokens that wait for clients to read them, small amounts "
                 "apart.",
                 unread != nullptr ? static_cast<double>(unread->bytes()) : 0);
  families.Counter("refrain_unread_answers_cut_total",
                   "Answers cut because such memory was used up and they were not read.",
                   unread != nullptr ? static_cast<double>(unread->cut()) : 0);
  DescribeConnections(&families);
  http_metrics_.Describe(shown, &families);
  grpc_metrics_.Describe(shown, &families);
  DescribeProcess(&families);
  return families.Text();
}

void Metrics::DescribeConnections(FamilyList* families) const {
  const auto samples = [this](std::atomic<int64_t> ConnectionCounts::*count) {
    const auto sample = [&](const ConnectionCounts& counts, std::string front_end) {
      return FamilyList::Sample{static_cast<double>(counts.*count),
                                {{"front_end", std::move(front_end)}}};
    };
    return std::vector{sample(*http_connections_, "http"), sample(*grpc_connections_, "grpc")};
  };
  families->Counter("refrain_connections_accepted_total", "Connections that clients made.",
                    samples(&ConnectionCounts::accepted));
  families->Counter("refrain_connections_refused_total",
                    "Connections turned away: as many as may be are open.",
                    samples(&ConnectionCounts::refused));
  families->Counter("refrain_connections_evicted_total",
                    "Idle connections ended for others: as many as may be are open.",
                    samples(&ConnectionCounts::evicted));
  families->Counter("refrain_accept_errors_total",
                    "Tries to accept a connection that failed: no files or no memory. It waits.",
                    samples(&ConnectionCounts::accept_errors));
}

}  // namespace refrain::server::metrics
