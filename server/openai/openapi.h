#ifndef REFRAIN_SERVER_OPENAI_OPENAPI_H_
#define REFRAIN_SERVER_OPENAI_OPENAPI_H_

#include <string>
#include <string_view>

#include "server/openai/protocol.h"

namespace refrain::server::openai {

// The OpenAPI 3.1 document of what Service answers. The bodies of the two generating endpoints are
// described by their parser (RequestSchema), with the limits of the model that is served; the rest
// is written down here and compared with a running server by the tests. Pure.
std::string OpenApiDocument(const ModelLimits& limits, std::string_view version);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_OPENAPI_H_
