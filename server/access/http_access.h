#ifndef REFRAIN_SERVER_ACCESS_HTTP_ACCESS_H_
#define REFRAIN_SERVER_ACCESS_HTTP_ACCESS_H_

#include <memory>
#include <optional>
#include <string_view>

#include "server/access/gate.h"
#include "server/http/message.h"

namespace refrain::server::access {

// What a path belongs to; nothing for those that are asked without a key (/health, /ready, /live).
// Unknown paths belong to kInference: who has no key does not learn which exist.
std::optional<Area> AreaOf(std::string_view path);

// The answer to who may not ask for this, null for who may; then `notes` say whose key it was.
// Looks at path and headers only, so it works before the body is there. Any thread, quick.
std::unique_ptr<http::Reply> RefuseUnlessAllowed(const Gate& gate, const http::Request& request);

}  // namespace refrain::server::access

#endif  // REFRAIN_SERVER_ACCESS_HTTP_ACCESS_H_
