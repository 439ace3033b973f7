#include "server/http/router.h"

#include <algorithm>

namespace refrain::server::http {
namespace {

bool Matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

}  // namespace

Router::Match Router::Find(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  Match match;
  for (const Route& route : routes_) {
    if (!Matches(route.path, path)) continue;
    if (route.method == wanted) {
      if (match.route == nullptr || route.path == path) match.route = &route;
    } else if (std::find(match.allowed.begin(), match.allowed.end(), route.method) ==
               match.allowed.end()) {
      match.allowed.push_back(route.method);
    }
  }
  if (match.route != nullptr) match.allowed.clear();
  return match;
}

std::string AllowHeader(const Router::Match& match) {
  std::string joined;
  for (const std::string& method : match.allowed) {
    if (!joined.empty()) joined += ", ";
    joined += method;
    if (method == "GET") joined += ", HEAD";
  }
  return joined;
}

}  // namespace refrain::server::http
