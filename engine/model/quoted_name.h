#ifndef REFRAIN_ENGINE_MODEL_QUOTED_NAME_H_
#define REFRAIN_ENGINE_MODEL_QUOTED_NAME_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace refrain::engine {

// A name out of an untrusted file, or a path, fit for an error message or a log: in double quotes,
// bytes that are not printable ASCII escaped, cut after 96 bytes or, a path, 4,096.
std::string QuotedName(std::string_view name);
std::string QuotedPath(std::string_view path);

// The same failure, with the file or folder that it is of in front.
absl::Status WithPath(const absl::Status& status, std::string_view path);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_QUOTED_NAME_H_
