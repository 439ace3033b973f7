#ifndef REFRAIN_SERVER_GRPC_LISTENER_H_
#define REFRAIN_SERVER_GRPC_LISTENER_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/connection_counts.h"
#include "server/listening_sockets.h"
#include "server/stall_watch.h"

namespace refrain::server::rpc {

// A port, at every address of a host, whose connections are handed to gRPC, no more of them at once
// than a bound: this release of gRPC has none of its own. It accepts and counts; everything behind
// that is gRPC's, which also closes the connections. A connection beyond the bound is closed at
// once.
//
// gRPC asks a silent client whether it is there, but no earlier than all before that has gone to
// the socket: who takes nothing more of what was written is ended here (StallWatch).
//
// gRPC cancels calls that come while it shuts down, which tells a client not to ask elsewhere: at
// the end the connections are ended here, before.
//
// Open, Start, Stop and the destructor on one thread; the functions of Taking are called on the
// listener's own.
// Failure: Open says why the address cannot be had; out of files, it waits for some, and tells.
class Listener {
 public:
  struct Taking {
    std::function<void(int socket)> take;            // owns it; it does not block
    std::function<void(int error)> on_accept_error;  // IsShortage, at each try; may be empty
  };

  // Connections wait in the kernel until Start. Port 0 = any free one.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& host, uint16_t port);
  ~Listener();

  uint16_t port() const { return port_; }
  // `counts` outlives the listener. A client takes each 64 KiB that were written to it, or all,
  // within `patience`, give or take a seventh.
  void Start(int max_connections, ConnectionCounts* counts, Taking taking,
             std::chrono::milliseconds patience = std::chrono::seconds(70));
  // Closes the port; what was taken stays. Idempotent.
  void Stop();
  // After Stop: waits until all that were taken have been closed; false when some have not.
  bool WaitUntilNoConnections(std::chrono::steady_clock::time_point deadline);
  // After Stop: ends what was taken and is not closed, behind what has been written to it. Its
  // owner reads the end, even while the other side goes on to send, and closes it.
  void ShutDownConnections();

 private:
  // The connections that were handed on. Their new owner closes them without a word, and the kernel
  // gives their numbers to other files; each socket has an inode of its own.
  class OpenConnections {
   public:
    // Owns `spare`, which stands for what `idle` does but while it stands for a connection: where
    // no files are left, those that stall have what others wait for.
    OpenConnections(int idle, int spare) : idle_(idle), spare_(spare) {}
    ~OpenConnections();

    void Add(int socket, std::chrono::milliseconds patience);
    bool Full(int most);
    bool empty() const { return open_.empty(); }
    // Those of clients that take nothing.
    void EndStalled(std::chrono::steady_clock::time_point now);
    bool WaitUntilNone(std::chrono::steady_clock::time_point deadline);
    void ShutDown();

   private:
    struct Entry {
      int socket;
      ino_t inode;
      StallWatch watch;
    };
    void Recount();

    const int idle_;
    const int spare_;
    std::vector<Entry> open_;
    std::chrono::steady_clock::time_point counted_;
  };

  Listener(std::vector<ListeningSocket> sockets, int stop_event, int spare);
  void Accept(int max_connections, ConnectionCounts* counts, const Taking& taking,
              std::chrono::milliseconds patience);
  bool WaitForStop(int most_ms) const;

  std::vector<ListeningSocket> sockets_;
  const int stop_event_;
  const uint16_t port_;
  OpenConnections open_;  // of the thread while it runs
  std::thread thread_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_LISTENER_H_
