#ifndef REFRAIN_TOOLS_LOADGEN_EXTRA_BODY_H_
#define REFRAIN_TOOLS_LOADGEN_EXTRA_BODY_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::loadgen {

// Members of --extra-body by name, each value as JSON text. They stand in a request's body in place
// of what loadgen has by that name.
using ExtraMembers = std::map<std::string, std::string>;

// INVALID_ARGUMENT when it is no JSON object, when a key occurs twice in one object (readers differ
// in which one they take), and for a member that would make the report untrue: `model`, `prompt`
// and `messages`, which loadgen tells or makes itself; a `stream` that is none, `stream_options`
// without usage, and `n` above 1.
absl::StatusOr<ExtraMembers> ParseExtraBody(std::string_view json_object);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_EXTRA_BODY_H_
