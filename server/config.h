#ifndef REFRAIN_SERVER_CONFIG_H_
#define REFRAIN_SERVER_CONFIG_H_

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/options.h"
#include "server/config_keys.h"
#include "server/log.h"

namespace refrain::server {

// The values of all configuration keys: defaults, overridden by one JSON file (`//` comments
// allowed), overridden by `--set` and the flags, in the order they are applied. Parsed once at
// start, then read only. A failed call leaves the values as they were.
class Config {
 public:
  Config();  // defaults

  // Every key of the file must be known and valid; `origin` (a path) names it in errors.
  absl::Status ApplyFile(std::string_view json_text, std::string_view origin);
  absl::Status Set(std::string_view key, std::string_view value);

  // Combinations that no key alone can check; OK when the daemon could start with this.
  absl::Status Validate() const;

  // `key` is in the table and of that kind.
  int64_t integer(std::string_view key) const;  // kInteger, kSize
  double seconds(std::string_view key) const;
  bool on(std::string_view key) const;
  const std::string& text(std::string_view key) const;  // kChoice, kText

  engine::EngineOptions EngineOptions() const;
  LogFormat log_format() const;
  LogLevel log_level() const;

 private:
  std::map<std::string, ConfigValue, std::less<>> values_;  // every key of the table
};

// HOST:PORT, [IPV6]:PORT.
struct ListenAddress {
  std::string host;
  uint16_t port = 0;
};
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);
// The other way round.
std::string AddressText(const ListenAddress& address);

// What the command line asks for.
struct CommandLine {
  enum class Action { kServe, kCheckConfig, kVersion, kHelp };
  Action action = Action::kServe;
  Config config;
};

// Reads the flags and the file they name. INVALID_ARGUMENT or NOT_FOUND say what is wrong where.
absl::StatusOr<CommandLine> ParseCommandLine(std::span<const char* const> arguments);

// The text of --help: usage and every key with default and meaning.
std::string HelpText();

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_CONFIG_H_
