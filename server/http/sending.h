#ifndef REFRAIN_SERVER_HTTP_SENDING_H_
#define REFRAIN_SERVER_HTTP_SENDING_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http/message.h"
#include "server/http/wire.h"

namespace refrain::server::http {

// The answer of a connection that is under way. Inside http/ only; a value, of the connection's
// thread.
struct Sending {
  using TimePoint = std::chrono::steady_clock::time_point;
  // waiting:  there is nothing to send
  // making:   the next part is a worker thread's to make
  // blocked:  `bytes` are left over, the client has to read first (or TLS is in between)
  // yielding: there may be more, but it is others' turn
  // done:     all was sent, or the client is gone
  enum class State { kWaiting, kMaking, kBlocked, kYielding, kDone };

  std::unique_ptr<Reply> reply;
  ReplyFramer framer;
  const RequestNotes* notes = nullptr;  // of the request; null where nobody reads them
  State state = State::kYielding;
  bool last = false;
  bool ending = false;   // Reply::OnLastBytes has been called
  bool broken = false;   // the rest of it could not be made
  bool can_ping = true;  // until Reply::Ping has had nothing
  int head_status = ResponseHead{}.status;
  std::function<ReplyPart()> make;
  std::string bytes;      // framed
  size_t sent_bytes = 0;  // of these, handed to the socket
  std::optional<TimePoint> due_since;
  TimePoint last_sent = std::chrono::steady_clock::now();  // or since when there was nothing
};

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_SENDING_H_
