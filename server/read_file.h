#ifndef REFRAIN_SERVER_READ_FILE_H_
#define REFRAIN_SERVER_READ_FILE_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::server {

// All bytes of a file (a pipe, until its end). NOT_FOUND where there is none, INVALID_ARGUMENT
// where it has more than `max_bytes`, UNAVAILABLE where it cannot be opened or read, as a directory
// cannot, nor a pipe that has been read before or that brings nothing for `pipe_patience`; messages
// begin with `what`, which may be "", and name path and reason. Blocks; any thread.
//
// Not by std::ifstream: its iterators throw when a read fails.
absl::StatusOr<std::string> ReadFile(
    std::string_view what, const std::string& path, size_t max_bytes,
    std::chrono::milliseconds pipe_patience = std::chrono::seconds(10));

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_READ_FILE_H_
