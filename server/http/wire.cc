#include "server/http/wire.h"

#include <charconv>
#include <ctime>

#include "server/concat.h"

namespace refrain::server::http {
namespace {

void AppendDate(std::string* out) {
  const std::time_t now = std::time(nullptr);
  std::tm utc;
  gmtime_r(&now, &utc);
  char text[40];
  out->append(text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc));
}

void AppendChunkSize(size_t size, std::string* out) {
  char hex[20];
  out->append(hex, std::to_chars(hex, hex + sizeof(hex), size, 16).ptr).append("\r\n");
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

void ReplyFramer::AppendHead(const ResponseHead& head, std::optional<size_t> content_length,
                             std::string* out) const {
  ConcatTo(out, "HTTP/1.1 ", head.status, " ", ReasonPhrase(head.status), "\r\nDate: ");
  AppendDate(out);
  ConcatTo(out, "\r\nContent-Type: ", head.content_type, "\r\n");
  if (content_length.has_value()) ConcatTo(out, "Content-Length: ", *content_length, "\r\n");
  if (chunked_) out->append("Transfer-Encoding: chunked\r\n");
  ConcatTo(out, "Connection: ", framing_.keep_alive ? "keep-alive" : "close", "\r\n");
  ConcatTo(out, "X-Request-Id: ", framing_.request_id, "\r\n");
  for (const Headers* headers : {&framing_.headers, &head.headers}) {
    for (const auto& [name, value] : *headers) ConcatTo(out, name, ": ", value, "\r\n");
  }
  out->append("\r\n");
}

std::string ReplyFramer::Frame(const ReplyPart& part) {
  std::string out;
  FrameTo(part, &out);
  return out;
}

void ReplyFramer::FrameTo(const ReplyPart& part, std::string* out) {
  constexpr size_t kMostHeadBytes = 400;  // of a usual one
  constexpr size_t kMostChunkBytes = 30;  // around a body
  if (part.close && !started_) framing_.keep_alive = false;
  if (!started_) {
    if (!part.head.has_value() && part.body.empty() && !part.last) return;
    started_ = true;
    out->reserve(out->size() + part.body.size() + kMostHeadBytes);
    const ResponseHead& head = part.head.has_value() ? *part.head : ResponseHead{};
    if (part.last) {
      AppendHead(head, part.body.size(), out);
      if (!framing_.head_only) out->append(part.body);
      return;
    }
    chunked_ = framing_.chunked_allowed;
    if (!chunked_) framing_.keep_alive = false;
    AppendHead(head, std::nullopt, out);
  }
  if (framing_.head_only) return;
  if (!part.body.empty()) {
    out->reserve(out->size() + part.body.size() + kMostChunkBytes);
    if (chunked_) AppendChunkSize(part.body.size(), out);
    out->append(part.body);
    if (chunked_) out->append("\r\n");
  }
  if (part.last && chunked_) out->append("0\r\n\r\n");
}

bool PercentDecode(std::string_view text, std::string* out) {
  out->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out->push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    out->push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

}  // namespace refrain::server::http
