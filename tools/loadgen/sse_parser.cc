#include "tools/loadgen/sse_parser.h"

namespace refrain::loadgen {

bool SseParser::Feed(std::string_view bytes, const OnData& on_data) {
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
    const bool go_on = TakeLine(line, on_data);
    line_.clear();
    if (!go_on) return false;
  }
  return true;
}

bool SseParser::TakeLine(std::string_view line, const OnData& on_data) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) {
    if (!has_data_) return true;
    const bool go_on = on_data(data_);
    data_.clear();
    has_data_ = false;
    return go_on;
  }
  constexpr std::string_view kData = "data";
  if (!line.starts_with(kData)) return true;
  line.remove_prefix(kData.size());
  if (!line.empty()) {
    if (line.front() != ':') return true;  // another field whose name begins so
    line.remove_prefix(1);
    if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  }
  if (has_data_) data_ += '\n';
  has_data_ = true;
  data_.append(line);
  return data_.size() <= most_event_bytes_;
}

}  // namespace refrain::loadgen
