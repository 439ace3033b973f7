#ifndef REFRAIN_SERVER_HTTP_EXCHANGE_H_
#define REFRAIN_SERVER_HTTP_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <string_view>

namespace refrain::server::http {

// One request and what became of it. The views are valid during the call only.
struct Exchange {
  std::string_view request_id;
  std::string_view method;     // "" of a request whose header could not be read
  std::string_view route;      // the matching route's path, a pattern; "" = none
  std::string_view path;       // percent-decoded, without the query: the client's own text
  std::string_view principal;  // RequestNotes::principal
  std::string_view details;    // RequestNotes::details
  // As sent; where nothing could be: 499 when the client went away before an answer began, 408 when
  // its body took too long.
  int status = 0;
  bool complete = false;  // all of the answer was handed to the socket
  size_t request_body_bytes = 0;
  size_t response_bytes = 0;  // handed to the socket: heads, bodies, chunk framing
  double seconds = 0;         // from the whole request being there to the answer's end
};

// Told of every exchange when it is over, on the connection's I/O thread, which it must not hold
// up. Calls come from several threads at once.
using ExchangeObserver = std::function<void(const Exchange&)>;

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_EXCHANGE_H_
