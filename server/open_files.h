#ifndef REFRAIN_SERVER_OPEN_FILES_H_
#define REFRAIN_SERVER_OPEN_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace refrain::server {

// Lets this process have as many files and sockets open as it may: raises the soft limit to the
// hard one. Returns the limit that holds then, the old one where it could not be raised. Once, at
// start.
int64_t RaiseOpenFileLimit();

// RESOURCE_EXHAUSTED, with the limit and what is needed, where `open_files` leave no connection to
// each of `front_ends` beside what the process itself needs, its `io_threads` among that: libraries
// that get no file at their start end the process, or serve nobody.
absl::Status CheckOpenFileLimit(int64_t open_files, int io_threads, int front_ends);

// What errno `error` says, and where the system refuses a file (IsFileRefused) which limits there
// are: an operator knows one of them. Any thread.
std::string SystemErrorText(int error);

// EMFILE, ENFILE.
bool IsFileRefused(int error);

// Opens /dev/null in place of each of standard input, output and error that is closed: the next
// file to be opened would else take its number, and what is written there, the log say, would go
// into a connection or the request log. Before anything is opened.
void OccupyStandardFiles();

// Of `open_files`, those that connections of one front end may take, at most `wanted`: some are
// for files and for what the process itself needs, each of its `io_threads` among that; with
// `shared` another front end has as many. At least 1.
int ConnectionLimit(int64_t open_files, int io_threads, bool shared, int wanted);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_OPEN_FILES_H_
