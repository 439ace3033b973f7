#ifndef REFRAIN_SERVER_DEBUG_DEBUG_ENDPOINTS_H_
#define REFRAIN_SERVER_DEBUG_DEBUG_ENDPOINTS_H_

#include <atomic>
#include <memory>

#include "engine/engine.h"
#include "server/http/router.h"

namespace refrain::server::debug {

// What an operator may look at while the server runs, under /debug; the daemon adds it only where
// `server.debug` is on. It does not own the engine: whoever does ends the HTTP server first.
//
//   GET /debug/cache?limit=1000&depth=3   the prefix tree, as JSON
//
// Handlers wait for the engine's step.
class DebugEndpoints {
 public:
  void AddRoutes(http::Router* router);
  void SetEngine(engine::Engine* engine) { engine_ = engine; }  // 503 before

 private:
  std::unique_ptr<http::Reply> Cache(const http::Request& request) const;

  std::atomic<engine::Engine*> engine_{nullptr};
};

}  // namespace refrain::server::debug

#endif  // REFRAIN_SERVER_DEBUG_DEBUG_ENDPOINTS_H_
