#ifndef REFRAIN_SERVER_GRPC_LIBRARY_LOG_H_
#define REFRAIN_SERVER_GRPC_LIBRARY_LOG_H_

#include "server/log.h"

namespace refrain::server::rpc {

// While it lives, what gRPC itself has to say goes to `log`, at level debug, as the event "grpc".
// By default it would be lines of another form on stderr: with text that strangers choose (header
// values, a line for every failed handshake), and written by gRPC's threads, which a pipe that
// nobody reads would stop. Only what it says before it aborts the process goes to stderr.
//
// gRPC has one receiver for the process: of several of these the last made counts, and where that
// is gone messages are lost. Any thread; `log` outlives it.
class LibraryLog {
 public:
  explicit LibraryLog(Log* log);
  ~LibraryLog();
  LibraryLog(const LibraryLog&) = delete;
  LibraryLog& operator=(const LibraryLog&) = delete;

 private:
  Log* const log_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_LIBRARY_LOG_H_
