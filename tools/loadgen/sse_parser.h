#ifndef REFRAIN_TOOLS_LOADGEN_SSE_PARSER_H_
#define REFRAIN_TOOLS_LOADGEN_SSE_PARSER_H_

#include <functional>
#include <string>
#include <string_view>

namespace refrain::loadgen {

// Cuts a stream of server-sent events into type and data of each event, however the bytes arrive.
// Comments and fields other than "event" and "data" are skipped, data of several lines is joined by
// '\n', line ends may be LF or CRLF. It does not know what the data means. One thread.
class SseParser {
 public:
  // `type` is empty where the event names none. False ends the parsing of these bytes.
  using OnEvent = std::function<bool(std::string_view type, std::string_view data)>;

  explicit SseParser(size_t most_event_bytes = 64 << 20) : most_event_bytes_(most_event_bytes) {}

  // Calls `on_event` for each event with data that is complete; both texts are valid during the
  // call. False when an event is longer than allowed or `on_event` said so.
  bool Feed(std::string_view bytes, const OnEvent& on_event);

 private:
  bool TakeLine(std::string_view line, const OnEvent& on_event);

  const size_t most_event_bytes_;
  std::string line_;  // the beginning of a line whose end has not come
  std::string type_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_SSE_PARSER_H_
