#ifndef REFRAIN_SERVER_OPENAI_OPENAPI_H_
#define REFRAIN_SERVER_OPENAI_OPENAPI_H_

#include <span>
#include <string>
#include <string_view>

#include "server/openai/protocol.h"

namespace refrain::server::openai {

// A route of the server that the document is of.
struct ServedRoute {
  std::string_view method;  // "GET"
  std::string_view path;    // as http::Router::Route has it
  bool asks_key = false;    // without a key it answers 401
};

// The OpenAPI 3.1 document of `routes`, no more and no fewer: of those that are not known here it
// says only that they are there. The bodies of the generating endpoints are described by their
// parser (RequestSchema), with the limits of the model that is served; the rest is written down
// here and compared with a running server by the tests. Pure.
std::string OpenApiDocument(const ModelLimits& limits, std::string_view version,
                            std::span<const ServedRoute> routes);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_OPENAPI_H_
