#ifndef REFRAIN_SERVER_HTTP_ROUTER_H_
#define REFRAIN_SERVER_HTTP_ROUTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace refrain::server::http {

enum class HandlerSpeed : uint8_t {
  kQuick,  // under a millisecond for small bodies: runs on the I/O thread; large bodies do not
  kSlow,   // always runs on a worker thread
  kProbe,  // some milliseconds, and nobody else's work is waited for: has a thread of its own
  kWaits,  // waits for the engine's step: has another one, so that no other route waits with it
};

// Which handler answers which method and path. Filled before the server starts, then read only by
// any thread.
class Router {
 public:
  using Handler = std::function<std::unique_ptr<Reply>(Request)>;

  struct Route {
    std::string method;
    std::string path;  // a trailing '*' stands for one or more characters
    Handler handler;
    HandlerSpeed speed = HandlerSpeed::kQuick;
    bool reads_body = method != "GET";  // false: it gets small ones only, which it ignores
  };

  struct Match {
    const Route* route = nullptr;      // null: nothing answers
    std::vector<std::string> allowed;  // the methods this path has, when only the method is wrong
  };

  void Add(Route route) { routes_.push_back(std::move(route)); }

  const std::vector<Route>& routes() const { return routes_; }

  // HEAD is answered by GET's route. Exact paths win over patterns.
  Match Find(std::string_view method, std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

// The value of an Allow header for a path that has other methods.
std::string AllowHeader(const Router::Match& match);

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_ROUTER_H_
