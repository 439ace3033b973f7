#ifndef REFRAIN_SERVER_OPEN_FILES_H_
#define REFRAIN_SERVER_OPEN_FILES_H_

#include <cstdint>

namespace refrain::server {

// Lets this process have as many files and sockets open as it may: raises the soft limit to the
// hard one. Returns the limit that holds then, the old one where it could not be raised. Once, at
// start.
int64_t RaiseOpenFileLimit();

// Opens /dev/null in place of each of standard input, output and error that is closed: the next
// file to be opened would else take its number, and what is written there, the log say, would go
// into a connection or the request log. Before anything is opened.
void OccupyStandardFiles();

// Of `open_files`, those that connections of one front end may take, at most `wanted`: some are
// for files and for what the process itself needs, each of its `io_threads` among that; with
// `shared` another front end has as many.
int ConnectionLimit(int64_t open_files, int io_threads, bool shared, int wanted);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_OPEN_FILES_H_
