#ifndef REFRAIN_SERVER_FORM_ERROR_H_
#define REFRAIN_SERVER_FORM_ERROR_H_

#include "absl/status/status.h"
#include "engine/grammar/output_format.h"

namespace refrain::server {

// What the engine says of a request with the form `format` (null: none). An error about a schema or
// a pattern begins with the field that has it: that becomes the `param`. Others stay as they are.
// Pure; any thread.
absl::Status NamingForm(absl::Status status, const engine::OutputFormat* format);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_FORM_ERROR_H_
