#include "server/access/http_access.h"

#include "server/error_reply.h"
#include "server/generation_note.h"

namespace refrain::server::access {

std::optional<Area> AreaOf(std::string_view path) {
  if (path == "/health" || path == "/ping" || path == "/ready" || path == "/live") {
    return std::nullopt;
  }
  if (path == "/metrics" || path == "/version" || path == "/openapi.json") {
    return Area::kMonitoring;
  }
  if (path.starts_with("/debug/") || path.starts_with("/admin/")) return Area::kAdmin;
  return Area::kInference;
}

std::unique_ptr<http::Reply> RefuseUnlessAllowed(const Gate& gate, const http::Request& request) {
  const std::optional<Area> area = AreaOf(request.path);
  if (!area.has_value()) return nullptr;
  const absl::StatusOr<Principal> principal =
      gate.Authenticate(*area, request.Header("authorization"));
  if (!principal.ok()) {
    if (request.notes != nullptr) {
      request.notes->principal = RefusedKeyName(principal.status());
      AppendRefusal(principal.status(), &request.notes->details);
    }
    return MakeErrorReply(principal.status());
  }
  if (request.notes != nullptr) {
    request.notes->principal = principal->key_name;
    request.notes->sees_all_keys = principal->sees_all_keys;
  }
  return nullptr;
}

}  // namespace refrain::server::access
