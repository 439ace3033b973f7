#ifndef REFRAIN_SERVER_METRICS_SHOWN_KEYS_H_
#define REFRAIN_SERVER_METRICS_SHOWN_KEYS_H_

#include <optional>
#include <string>
#include <utility>

namespace refrain::server::metrics {

// Which names of keys the reader of a page sees: all, or its own alone. Those of others are one
// name then. "", of callers without a key, is nobody's.
class ShownKeys {
 public:
  static constexpr const char* kOthers = "(others)";  // no key can have this name

  ShownKeys() = default;  // all
  explicit ShownKeys(std::string reader) : reader_(std::move(reader)) {}

  std::string operator()(const std::string& key) const {
    return !reader_.has_value() || key.empty() || key == *reader_ ? key : kOthers;
  }

 private:
  std::optional<std::string> reader_;
};

}  // namespace refrain::server::metrics

#endif  // REFRAIN_SERVER_METRICS_SHOWN_KEYS_H_
