#ifndef REFRAIN_SERVER_CONFIG_KEYS_H_
#define REFRAIN_SERVER_CONFIG_KEYS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"

namespace refrain::server {

enum class KeyKind : uint8_t {
  kInteger,  // min..max
  kSize,     // bytes, an integer or text such as 512MiB; min..max
  kSeconds,  // a number, min..max
  kSwitch,   // on, off
  kChoice,   // one of `choices`
  kText,     // any string
};

// One row of the table of all configuration keys. `--help`, the configuration page, the checks of
// files and flags, and the test of configs/refraind.json are all made from it.
struct ConfigKey {
  std::string_view name;  // "section.key"
  KeyKind kind;
  std::string_view default_text;
  double min = 0;
  double max = 0;
  std::string_view choices;  // kChoice: names with one space between
  std::string_view meaning;  // one line, with the unit and what 0 or "" means
  // False: this build has nothing behind the key, so only its default is accepted.
  bool available = true;
};

std::span<const ConfigKey> ConfigKeys();
const ConfigKey* FindConfigKeyOrNull(std::string_view name);

// The name of the known key that looks most like `name`, or lacks its section; none where none
// looks like it.
std::optional<std::string_view> NearConfigKey(std::string_view name);

using ConfigValue = std::variant<int64_t, double, bool, std::string>;

// The value that `text` means for `key`, checked against its limits. INVALID_ARGUMENT names the
// key, the value and what would be valid.
absl::StatusOr<ConfigValue> ParseConfigValue(const ConfigKey& key, std::string_view text);

// What may stand there: "an integer from 1 to 64", "one of: auto on off".
std::string ValidValues(const ConfigKey& key);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_CONFIG_KEYS_H_
