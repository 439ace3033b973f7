#include "server/debug/debug_endpoints.h"

#include "server/debug/cache_page.h"
#include "server/error_reply.h"
#include "server/served_model.h"

namespace refrain::server::debug {
void DebugEndpoints::AddRoutes(http::Router* router) {
  router->Add({"GET", "/debug/cache",
               [this](const http::Request& request) { return Cache(request); },
               http::HandlerSpeed::kWaits});
}

std::unique_ptr<http::Reply> DebugEndpoints::Cache(const http::Request& request) const {
  engine::Engine* const engine = engine_;
  if (engine == nullptr) return MakeErrorReply(StillLoading());
  const absl::StatusOr<engine::CacheViewLimits> limits = ParseCacheQuery(request.query);
  if (!limits.ok()) return MakeErrorReply(limits.status());
  const absl::StatusOr<engine::CacheView> view = engine->DescribeCache(*limits);
  if (!view.ok()) return MakeErrorReply(view.status());
  return http::MakeReply({}, CachePage(*view, engine->stats()));
}

}  // namespace refrain::server::debug
