#ifndef REFRAIN_SERVER_ACCESS_MAKE_KEY_COMMAND_H_
#define REFRAIN_SERVER_ACCESS_MAKE_KEY_COMMAND_H_

#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace refrain::server::access {

// `refraind make-key --file FILE --name NAME [--weight W] [--requests N] [--tokens-per-s N]`:
// adds a fresh key to the file, made readable by its owner alone where it did not exist, and
// returns the key, which is nowhere else. INVALID_ARGUMENT for a wrong call, and where the daemon
// would not read the file with the key in it: a name has one set of terms, other lines may be
// wrong. The file is then as it was, or not there. Several calls at once are one after the other,
// where the file system has locks. UNAVAILABLE where the file cannot be read, locked or written.
// With --help it returns how it is called instead, and adds nothing.
absl::StatusOr<std::string> RunMakeKey(std::span<const char* const> arguments);

}  // namespace refrain::server::access

#endif  // REFRAIN_SERVER_ACCESS_MAKE_KEY_COMMAND_H_
