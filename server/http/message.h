#ifndef REFRAIN_SERVER_HTTP_MESSAGE_H_
#define REFRAIN_SERVER_HTTP_MESSAGE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace refrain::server::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

// What is found out about a request besides the answer, for logs and metrics. Written by whoever
// makes the answer (filter, then handler, then the Reply until it is destroyed), one after the
// other; read by the server afterwards.
struct RequestNotes {
  std::string principal;      // the name of the key that was presented; "" = none
  bool sees_all_keys = true;  // access::Principal's
  std::string details;        // members of a JSON object, for the request log: "a":1,"b":"c"
};

// One complete request. The body is bytes as sent, whatever its content type says.
struct Request {
  std::string method;
  std::string path;   // percent-decoded, without the query
  std::string query;  // as sent, without '?'
  std::string body;
  // The body's part of what all bodies may hold; null for small ones. Whoever keeps what the body
  // says keeps this, too.
  std::shared_ptr<const void> body_hold;
  std::string id;          // the client's x-request-id, or one made here; safe to log and to echo
  bool on_worker = false;  // its handler runs on a worker thread, not on one that serves sockets
  // When all of it was there; absent where no server has received it.
  std::optional<std::chrono::steady_clock::time_point> arrived;
  Headers headers;
  std::shared_ptr<RequestNotes> notes;  // null where nobody reads them

  // The first header of that name in any case; empty when there is none.
  std::string_view Header(std::string_view name) const;
  // Nothing where it is absent; one that is there may be empty.
  std::optional<std::string_view> FindHeader(std::string_view name) const;
};

struct ResponseHead {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers;  // beyond those the server writes itself (length, connection, date, request id)
};

// The next piece of an answer. The first piece that holds anything carries the head. An answer
// whose first piece is also its last is sent with Content-Length, others chunked.
struct ReplyPart {
  std::optional<ResponseHead> head;
  std::string body;
  bool last = false;
  // The connection ends after the answer. Read with the head, which says so to the client: whoever
  // was told that it is kept may have sent the next request.
  bool close = false;
  // Since when the first of it has waited to be sent, for ServerOptions::on_part_sent.
  std::optional<std::chrono::steady_clock::time_point> due_since;
  // In place of all above, where that takes longer than a millisecond: makes the part, on a worker
  // thread. Nothing else of the reply is called meanwhile.
  std::function<ReplyPart()> make;
};

// An answer that is fetched as fast as the client reads it, so that a slow reader holds up itself
// alone: Next is not called again before its last piece is on the way.
//
//   Start(wakeup)                                 once
//   Next() -> nothing to send yet                 the server waits for `wakeup`
//   Next() -> a part                              sent; Next is called again
//   Next() -> a part with `last`                  sent; OnLastBytes before the end of it, then
//                                                 the reply is destroyed
//   destroyed without having said `last`          the client went away: stop working for it
//
// All calls come from one I/O thread and must not take longer than a millisecond: a part is tens of
// kilobytes at most (ReplyPart::make is for those that cannot be cut). `wakeup` may be
// called on any thread, any number of times, also after the reply is gone, until the server is
// destroyed; it never blocks.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void Start(std::function<void()> /*wakeup*/) {}
  virtual ReplyPart Next() = 0;
  // Next has had nothing for ServerOptions::ping_interval: a part that means nothing, for whoever
  // gives up where nothing comes, or an empty one where the answer has no such thing. It is not the
  // last; as the first one it carries the head.
  virtual ReplyPart Ping() { return {}; }
  // A part that is not the last waits for the client to read on: when that begins, and at each
  // wakeup until it has. For whoever may have to give back memory of what is to come.
  virtual void WhileBlocked() {}
  // The last bytes, 64 KiB at most, are about to be handed to the socket: whoever has them has the
  // whole answer and may send the next request, also before the reply is destroyed. Once, not where
  // the client has gone before; must not block.
  virtual void OnLastBytes() {}
};

// A whole answer that is there already.
std::unique_ptr<Reply> MakeReply(ResponseHead head, std::string body);

// The answer that `make` makes, on a worker thread: for requests that are found to be a long work
// when a part of it is done. What `make` throws ends the connection.
std::unique_ptr<Reply> MakeReplyOnWorker(std::function<std::unique_ptr<Reply>()> make);

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_MESSAGE_H_
