#ifndef REFRAIN_ENGINE_SERVED_NAME_H_
#define REFRAIN_ENGINE_SERVED_NAME_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace refrain::engine {

// The name that clients see stands in JSON and in metrics, which are UTF-8 without exception. A
// name that was chosen is refused where it is not, as any bad value; a file's was often chosen by
// nobody who serves it, and is mended.

// INVALID_ARGUMENT for a `name` with bytes that are not UTF-8 or with control characters (U+0000 to
// U+001F, U+007F to U+009F): the name, what is wrong, and at which byte. Pure; any thread.
absl::Status CheckServedName(std::string_view name);

// Of the model at `path`: a folder's name (of a snapshot in Hugging Face's cache, its
// repository's), a file's without its extension, of a link its own; U+FFFD for each part that
// CheckServedName refuses. Looks whether the path is a folder; any thread.
std::string ServedNameOfPath(const std::string& path);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_SERVED_NAME_H_
