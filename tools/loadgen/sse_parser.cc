#include "tools/loadgen/sse_parser.h"

#include <optional>

namespace refrain::loadgen {
namespace {

// The value of a line of that field; nothing for a line of another one.
std::optional<std::string_view> ValueOf(std::string_view field, std::string_view line) {
  if (!line.starts_with(field)) return std::nullopt;
  line.remove_prefix(field.size());
  if (line.empty()) return line;
  if (line.front() != ':') return std::nullopt;  // a field whose name only begins so
  line.remove_prefix(1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

}  // namespace

bool SseParser::Feed(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      line_.append(bytes);
      return line_.size() <= most_event_bytes_;
    }
    std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (!line_.empty()) {
      line_.append(line);
      line = line_;
    }
    const bool go_on = TakeLine(line, on_event);
    line_.clear();
    if (!go_on) return false;
  }
  return true;
}

bool SseParser::TakeLine(std::string_view line, const OnEvent& on_event) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) {
    const bool go_on = !has_data_ || on_event(type_, data_);
    type_.clear();
    data_.clear();
    has_data_ = false;
    return go_on;
  }
  if (const auto type = ValueOf("event", line)) type_ = *type;
  const auto data = ValueOf("data", line);
  if (!data.has_value()) return true;
  if (has_data_) data_ += '\n';
  has_data_ = true;
  data_.append(*data);
  return data_.size() <= most_event_bytes_;
}

}  // namespace refrain::loadgen
