#ifndef REFRAIN_SERVER_HTTP_REQUEST_HEADER_H_
#define REFRAIN_SERVER_HTTP_REQUEST_HEADER_H_

#include <boost/beast/http/parser.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "server/http/message.h"
#include "server/http/received_body.h"
#include "server/http/server.h"

// What a connection makes of a request's header. Inside http/ only; pure.
namespace refrain::server::http {

// Beast's, for a bounded number of fields: one takes 160 bytes here beside its own, which may be
// four. Beast's limit of a header's bytes holds for what is read at once; here it holds for all
// fields together, however they come.
class RequestParser final : public boost::beast::http::request_parser<ReceivedBody> {
 public:
  // Of a header and behind a last chunk together; clients send some twenty.
  static constexpr size_t kMostFields = 256;
  // Of a field's name, and of its value: beyond, Beast throws where nobody catches it.
  static constexpr size_t kMostFieldBytes = 65'533;

  explicit RequestParser(size_t header_bytes);

 private:
  void on_field_impl(boost::beast::http::field field, boost::beast::string_view name,
                     boost::beast::string_view value, boost::system::error_code& error) override;

  size_t fields_ = 0;
  size_t header_bytes_left_;  // for fields, as they are written
};

// The answer to a request that cannot be read.
struct ReadFailure {
  int status = 0;  // 0: nobody to answer, or nothing is wrong
  std::string message;
};

// `parser`: how far reading came.
ReadFailure ClassifyReadError(const boost::system::error_code& error, const RequestParser& parser,
                              const ServerOptions& options);

// What the parser lets pass, although others may read it in another way, and see another request
// begin elsewhere (RFC 9112, 6.3 and 11.2).
ReadFailure CheckFraming(const RequestParser& parser);

bool Expects100Continue(const RequestParser& parser);
bool HasRightHost(const RequestParser& parser);

// The first Content-Encoding that is one: "identity" is none. Empty: none.
std::string_view ContentCoding(const Request& request);

// The client's x-request-id as far as the header has been read, or one made here.
std::string RequestIdOf(const RequestParser& parser);

// Everything but the body. The host of a target in absolute form stands in place of the field Host.
// What is wrong with the target; empty: nothing.
std::string_view TakeHeader(const RequestParser& parser, Request* request);

}  // namespace refrain::server::http

#endif  // REFRAIN_SERVER_HTTP_REQUEST_HEADER_H_
