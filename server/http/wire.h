#ifndef REFRAIN_SERVER_HTTP_WIRE_H_
#define REFRAIN_SERVER_HTTP_WIRE_H_

#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"
#include "server/request_id.h"

namespace refrain::server::http {

// What the framing of an answer depends on.
struct Framing {
  std::string request_id;
  bool keep_alive = true;
  bool chunked_allowed = true;  // HTTP/1.1
  bool head_only = false;       // answer to HEAD
  Headers headers;              // beside those of the answer itself
};

// Serialises an answer, part after part, into bytes for the socket. Without chunked encoding
// (HTTP/1.0) an answer of several parts ends with the connection. Not thread safe; cannot fail.
class ReplyFramer {
 public:
  explicit ReplyFramer(Framing framing) : framing_(std::move(framing)) {}

  // Bytes to send for `part`, possibly none.
  std::string Frame(const ReplyPart& part);
  // The same, behind what `out` holds.
  void FrameTo(const ReplyPart& part, std::string* out);

  // Whether another request may follow on the connection; known after the last part.
  bool keep_alive() const { return framing_.keep_alive; }
  bool started() const { return started_; }

 private:
  void AppendHead(const ResponseHead& head, std::optional<size_t> content_length,
                  std::string* out) const;

  Framing framing_;
  bool started_ = false;
  bool chunked_ = false;
};

std::string_view ReasonPhrase(int status);

// False for malformed escapes and for a NUL.
bool PercentDecode(std::string_view text, std::string* out);

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_WIRE_H_
