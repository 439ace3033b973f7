#ifndef REFRAIN_SERVER_GRPC_SERVER_H_
#define REFRAIN_SERVER_GRPC_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/access/gate.h"
#include "server/connection_counts.h"
#include "server/grpc/call_record.h"
#include "server/log.h"
#include "server/unread_answers.h"

namespace refrain::server::rpc {

struct ServerOptions {
  std::string host;
  uint16_t port = 0;                  // 0 = any free one
  int stream_threads = 2;             // bring on answers; gRPC has its own for sockets
  int64_t message_bytes = 16 << 20;   // of a request
  size_t messages_bytes = 256 << 20;  // of all that are held, small ones apart
  int header_bytes = 32 << 10;        // metadata of a call
  int calls_per_connection = 1024;    // at once; a client keeps more waiting
  size_t memory_bytes = 1 << 30;      // of all connections; beyond, calls are refused
  std::chrono::milliseconds write_timeout{120'000};  // for a message: a client that does not read
  std::shared_ptr<UnreadAnswers> unread;             // counts what is generated; null: nobody does
  int max_connections = 10000;                       // at once; more are closed
  std::shared_ptr<ConnectionCounts> connection_counts = std::make_shared<ConnectionCounts>();
  // Told of errno at each try to accept for which there are no files or no memory, on one thread;
  // may be empty.
  std::function<void(int error)> on_accept_error;
  std::chrono::milliseconds handshake_timeout{15'000};  // to the first frame of HTTP/2
  std::chrono::milliseconds idle_timeout{300'000};      // without a call; 0 = none
  // For what clients that are connected when the server ends are about to send.
  std::chrono::milliseconds last_requests{200};
  // The least between the pings of a client, whether it has a call or not; beyond, its connection
  // ends.
  std::chrono::milliseconds ping_interval{10'000};
  // Then a connection takes no more calls and ends with the last that runs; 0 = none. gRPC itself
  // waits without end for a call's message, so that a client that withholds it holds its
  // connection: where calls have a time limit, too, the connection ends once that and `grace` have
  // passed.
  std::chrono::milliseconds max_age{0};
  std::chrono::milliseconds call_timeout{0};  // limits.request_timeout_s; 0 = none
  std::chrono::milliseconds grace{240'000};   // for the message and the answer on their way
  int32_t max_choices = 128;                  // limits.n
  int32_t max_beams = 64;                     // engine.max_sequences
  // PEM; read again when they have changed. Empty = plain text.
  std::string tls_cert_file;
  std::string tls_key_file;
  bool log_prompts = false;    // log.prompts
  bool isolates_keys = false;  // kv_cache.isolation is api_key
  CallObserver on_call;        // may be empty, as the next one
  // From a token's sampling until its message was handed to the socket; of several that go out
  // together the oldest one's.
  std::function<void(std::chrono::nanoseconds delay)> on_message_sent;
  // Told false when gRPC no longer answers what the server asks itself (SelfCheck), and true when
  // it does again, on a thread of its own; may be empty.
  std::function<void(bool answers)> on_answers;
  std::chrono::milliseconds self_check_period{10'000};
  std::chrono::milliseconds self_check_patience{10'000};
};

// The gRPC front end: proto/inference.proto and proto/admin.proto, grpc.health.v1 and server
// reflection, on a port of its own. It listens, and says that it loads, before there is an engine,
// which it does not own: whoever does stops the server first. (The namespace is not `grpc`: inside
// it that name is the library's.)
//
// One thread starts and stops it, but for the wait. Start fails with UNAVAILABLE when the address
// cannot be had, with RESOURCE_EXHAUSTED where the system refuses one of its threads, or memory,
// and with INTERNAL where gRPC does not start. After these two the process has to end by _exit:
// what gRPC has begun goes on, with `gate`, `log` and the options' functions.
class Server {
 public:
  // `gate` and `log` outlive it.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       access::Gate* gate, Log* log);
  ~Server();

  uint16_t port() const;
  void SetEngine(engine::Engine* engine);  // ready from now on
  // New calls are UNAVAILABLE from now on, and so says the health service.
  void BeginDrain();
  // Waits until the calls that run have finished; false when some have not at `deadline`. On any
  // thread; Stop on another ends the wait.
  bool WaitUntilAnswered(std::chrono::steady_clock::time_point deadline);
  // Lets the calls that run finish within `grace`, then ends them as cancelled. Otherwise calls
  // that come are answered as UNAVAILABLE for `last_requests` (at most `grace`) while somebody is
  // connected, and then the connections end, which takes up to 0.1 s more. Once.
  void Stop(std::chrono::milliseconds grace);

 private:
  class Impl;  // keeps gRPC out of every file that starts a server
  explicit Server(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_SERVER_H_
