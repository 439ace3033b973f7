#ifndef REFRAIN_SERVER_HTTP_SERVER_H_
#define REFRAIN_SERVER_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/connection_counts.h"
#include "server/http/cors.h"
#include "server/http/exchange.h"
#include "server/http/router.h"
#include "server/http/tls.h"

namespace refrain::server::http {

struct ServerOptions {
  std::string host = "127.0.0.1";  // of a name: all its addresses
  uint16_t port = 0;               // 0 = any free one
  int io_threads = 2;
  int worker_threads = 2;  // run handlers of large bodies and slow routes
  size_t header_bytes = 32 << 10;
  size_t body_bytes = 16 << 20;
  size_t bodies_bytes = 256 << 20;  // of all that are being read or kept, small ones apart
  int max_connections = 10000;
  std::shared_ptr<ConnectionCounts> connection_counts = std::make_shared<ConnectionCounts>();
  // Told of errno at each try to accept for which there are no files or no memory, on one thread;
  // may be empty.
  std::function<void(int error)> on_accept_error;
  // Where there are as many connections as may be, one that has waited this long for a request
  // gives up its place for another: who has connected just now is about to send.
  std::chrono::milliseconds place_kept{1'000};

  std::chrono::milliseconds idle_timeout{120'000};  // between a connection's requests; 0 = none
  // From a header's first byte to its last; the whole body where nothing reads it.
  std::chrono::milliseconds header_timeout{15'000};
  std::chrono::milliseconds body_timeout{120'000};  // the whole body
  // For 64 KiB of an answer, or what the socket has of it, to be taken by the client's system.
  std::chrono::milliseconds write_timeout{120'000};
  // The least that a client reads of what is ready of an answer, from write_timeout on: who takes
  // each 64 KiB in time may else hold a large answer's memory for days. 0 = no limit.
  size_t answer_bytes_per_s = 0;
  // An answer of which nothing was sent for so long gets a ping (Reply::Ping), and again; 0 = none.
  std::chrono::milliseconds ping_interval{0};
  // For what clients that are connected when the server ends are about to send.
  std::chrono::milliseconds last_requests{200};
  // A client that says nothing for so long is asked whether it is there; one that has vanished
  // without a word is noticed write_timeout after it was last heard of. Whole seconds.
  std::chrono::seconds probe_after{60};

  // Makes the body of an answer that no handler gave (404, 413 and so on); JSON.
  std::function<std::string(int status, std::string_view message)> error_body;
  ExchangeObserver on_exchange;  // may be empty
  // Told of every part with a `due_since` when all of it was handed to the socket; as quick as
  // on_exchange. May be empty.
  std::function<void(std::chrono::nanoseconds delay)> on_part_sent;

  // Told what an exception said that was thrown where a request is handled or an answer is made:
  // memory that could not be had, or a bug. Any thread, several at once. May be empty.
  std::function<void(std::string_view what)> on_fault;

  // Sees every request before its body is read; null = it may go on, else the answer, and a large
  // body is not taken in. Quick: runs on the I/O threads, several at once. May be empty.
  std::function<std::unique_ptr<Reply>(const Request& without_body)> filter;
  CorsPolicy cors;

  std::shared_ptr<TlsCertificate> tls;  // null = plain HTTP
};

// An HTTP/1.1 server: sockets, TLS, framing, limits, timeouts, keep-alive, pipelining; each
// connection is a coroutine on one of the I/O threads. It knows nothing of what it serves: that is
// the router's.
//
// While an answer is being made the connection is watched: when the client closes it (half-closing
// counts), the Reply is destroyed at once (before there is one, a request with a body that waits
// for a worker thread), also where the client has not read what was sent; once its last part is
// there, that goes out all the same. Requests that a client sends ahead are kept, up to a bound,
// and answered in order.
//
// Thread rule: Start, BeginDrain, Stop and the destructor from one thread, the wait from any.
// Failure: Start says why it cannot listen, or what the system has no more of (RESOURCE_EXHAUSTED);
// what goes wrong on a connection ends that connection only.
class Server {
 public:
  // `router` outlives the server and does not change any more.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, const Router* router);
  ~Server();  // Stop without grace

  // The port in use, also when the options asked for any.
  uint16_t port() const;
  int connections() const;

  // From now on every answer ends its connection, so that clients go elsewhere. Behind one that has
  // begun and told the client that the connection is kept, one more request is answered that comes
  // within `last_requests`.
  void BeginDrain();

  // Waits until no answer is under way, with all of it handed to the sockets; false when one is at
  // `deadline`. New requests are served meanwhile. Bodies that were coming before BeginDrain are
  // waited for, too, so that their clients get an answer; one that has not come by `deadline` makes
  // no difference. Stop on another thread ends the wait.
  bool WaitUntilAnswered(std::chrono::steady_clock::time_point deadline) const;

  // Accepts no more, closes connections that stay idle for `last_requests` (at most `grace`),
  // answers requests whose bodies have not come by then with 503, lets answers that are under way
  // be sent for `grace` (0.1 s at least), then closes everything. What clients have sent by then is
  // answered, on connections that nobody has accepted yet, too. Replies are destroyed when it
  // returns. Idempotent.
  void Stop(std::chrono::milliseconds grace);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_SERVER_H_
