#include "server/http/request_header.h"

#include <algorithm>
#include <boost/beast/http/error.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

#include "server/concat.h"
#include "server/http/wire.h"

namespace refrain::server::http {

namespace beast = boost::beast;
using boost::system::error_code;

namespace {

std::string ToString(beast::string_view text) { return std::string(text.data(), text.size()); }

// Clients of a proxy send the absolute form (RFC 9112 section 3.2.2), which every server has to
// take. The target becomes what stands behind the authority, which is returned; nothing where there
// is none.
std::optional<std::string> TakeAuthority(std::string* target) {
  for (const beast::string_view scheme : {"http://", "https://"}) {
    const beast::string_view begin = beast::string_view(*target).substr(0, scheme.size());
    if (!beast::iequals(begin, scheme)) continue;
    const size_t path = std::min(target->find_first_of("/?", scheme.size()), target->size());
    std::string authority = target->substr(scheme.size(), path - scheme.size());
    target->erase(0, path);
    if (!target->starts_with('/')) target->insert(0, "/");
    return authority;
  }
  return std::nullopt;
}

// RFC 9110 sections 4.2.1 and 4.2.4.
std::string_view ProblemOfAuthority(std::string_view authority) {
  if (authority.find('@') != std::string_view::npos) return "the request target names a user";
  if (authority.empty() || authority.starts_with(':')) return "the request target names no host";
  return "";
}

void ReplaceHost(const std::string& host, Headers* headers) {
  std::erase_if(*headers, [](const auto& header) { return beast::iequals(header.first, "host"); });
  headers->emplace_back("Host", host);
}

constexpr auto kTooManyFields = boost::system::errc::argument_list_too_long;
constexpr auto kTooLongField = boost::system::errc::value_too_large;

}  // namespace

RequestParser::RequestParser(size_t header_bytes) : header_bytes_left_(header_bytes) {
  header_limit(static_cast<std::uint32_t>(header_bytes));
}

void RequestParser::on_field_impl(beast::http::field field, beast::string_view name,
                                  beast::string_view value, error_code& error) {
  if (++fields_ > kMostFields) {
    error = make_error_code(kTooManyFields);
    return;
  }
  if (!is_header_done()) {
    const size_t bytes = name.size() + value.size() + std::string_view(": \r\n").size();
    if (bytes > header_bytes_left_) {
      error = make_error_code(beast::http::error::header_limit);
      return;
    }
    header_bytes_left_ -= bytes;
  }
  if (std::max(name.size(), value.size()) > kMostFieldBytes) {
    error = make_error_code(kTooLongField);
    return;
  }
  get().insert(field, name, value);
}

ReadFailure ClassifyReadError(const error_code& error, const RequestParser& parser,
                              const ServerOptions& options) {
  namespace http = beast::http;
  if (error == http::error::header_limit) {
    return {431, "request header is larger than " + std::to_string(options.header_bytes) +
                     " bytes (limits.header_bytes)"};
  }
  if (error == kTooManyFields) {
    return {431, Concat("request header has more than ", RequestParser::kMostFields, " fields")};
  }
  if (error == kTooLongField) {
    return {431, Concat("a field of the request header, or behind the last chunk, has a name or a "
                        "value of more than ",
                        RequestParser::kMostFieldBytes, " bytes")};
  }
  if (error == http::error::buffer_overflow) {
    return {431, "a chunk's extensions, or the fields behind the last chunk, are too long"};
  }
  if (error == http::error::body_limit) {
    return {413, "request body is larger than " + std::to_string(options.body_bytes) +
                     " bytes (limits.body_bytes)"};
  }
  if (error == boost::system::errc::not_enough_memory) {
    return {503, "the server has no memory for the request's body"};
  }
  // Who has sent the end of its bytes may still read; without that it has reset or vanished.
  if (error == http::error::partial_message) {
    const char* part = parser.is_header_done() ? "body" : "header";
    return {400, Concat("malformed HTTP request: it ended before its ", part, " did")};
  }
  if (error == http::error::end_of_stream) return {};
  if (error.category() == make_error_code(http::error::bad_method).category()) {
    return {400, "malformed HTTP request: " + error.message()};
  }
  return {};  // timeout, reset
}

ReadFailure CheckFraming(const RequestParser& parser) {
  const auto& header = parser.get();
  using beast::http::field;
  if (header.count(field::content_length) > 1) {
    return {400, "malformed HTTP request: more than one Content-Length"};
  }
  const size_t encodings = header.count(field::transfer_encoding);
  if (encodings == 0) return {};
  if (header.version() < 11) return {400, "malformed HTTP request: Transfer-Encoding in HTTP/1.0"};
  if (encodings > 1 || !beast::iequals(header[field::transfer_encoding], "chunked")) {
    return {400, "the only Transfer-Encoding that is understood is \"chunked\""};
  }
  return {};
}

bool Expects100Continue(const RequestParser& parser) {
  // HTTP/1.0 has no interim answers (RFC 9110 section 10.1.1).
  return parser.get().version() >= 11 &&
         beast::iequals(parser.get()[beast::http::field::expect], "100-continue");
}

bool HasRightHost(const RequestParser& parser) {
  return parser.get().version() < 11 || parser.get().count(beast::http::field::host) == 1;
}

std::string_view ContentCoding(const Request& request) {
  for (const auto& [name, value] : request.headers) {
    if (!beast::iequals(name, "content-encoding")) continue;
    for (std::string_view rest = value; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      std::string_view coding = rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      coding.remove_prefix(std::min(coding.find_first_not_of(" \t"), coding.size()));
      coding = coding.substr(0, coding.find_last_not_of(" \t") + 1);
      if (!coding.empty() &&
          !beast::iequals(beast::string_view(coding.data(), coding.size()), "identity")) {
        return coding;
      }
    }
  }
  return {};
}

std::string RequestIdOf(const RequestParser& parser) {
  const auto& fields = parser.get();
  const auto field = fields.find("x-request-id");
  std::string id = field == fields.end() ? "" : ToString(field->value());
  return IsAcceptableRequestId(id) ? id : MakeRequestId();
}

std::string_view TakeHeader(const RequestParser& parser, Request* request) {
  const auto& message = parser.get();
  request->method = ToString(message.method_string());
  for (const auto& field : message) {
    request->headers.emplace_back(ToString(field.name_string()), ToString(field.value()));
  }
  request->id = RequestIdOf(parser);
  std::string target = ToString(message.target());
  if (const std::optional<std::string> authority = TakeAuthority(&target)) {
    const std::string_view problem = ProblemOfAuthority(*authority);
    if (!problem.empty()) return problem;
    ReplaceHost(*authority, &request->headers);
  }
  if (const size_t question = target.find('?'); question != std::string::npos) {
    request->query = target.substr(question + 1);
    target.resize(question);
  }
  return PercentDecode(target, &request->path) ? "" : "malformed escape in the request target";
}

}  // namespace refrain::server::http
