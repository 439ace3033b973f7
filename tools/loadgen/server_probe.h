#ifndef REFRAIN_TOOLS_LOADGEN_SERVER_PROBE_H_
#define REFRAIN_TOOLS_LOADGEN_SERVER_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/loadgen/http_backend.h"

namespace refrain::loadgen {

// The name of the first model that the server lists. UNAVAILABLE: no server there.
absl::StatusOr<std::string> AskForModel(const HttpTarget& target, const std::string& api_key);

// Whether /v1/completions takes a prompt of token ids: one short request is made. UNAVAILABLE: the
// server refuses it for another reason, named with its status.
absl::StatusOr<bool> TakesTokenIds(const HttpTarget& target, const std::string& api_key,
                                   const std::string& model, int32_t token_id);

// The first line of a file, without blanks at its ends. NOT_FOUND, or INVALID_ARGUMENT when it is
// empty.
absl::StatusOr<std::string> ReadKey(const std::string& path);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_SERVER_PROBE_H_
