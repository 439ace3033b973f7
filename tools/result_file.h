#ifndef REFRAIN_TOOLS_RESULT_FILE_H_
#define REFRAIN_TOOLS_RESULT_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace refrain {

// Asked before work whose result would have no place: UNAVAILABLE names the file of --json that
// cannot be written. What it holds stays, and where there was none there is none: an empty one
// would look like a result. An empty path and "-" are no files.
absl::Status CheckResultFile(const std::string& path);

// UNAVAILABLE when something that was printed to standard output could not be written, as on a full
// disk.
absl::Status FlushStandardOutput();

}  // namespace refrain

#endif  // REFRAIN_TOOLS_RESULT_FILE_H_
