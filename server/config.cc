#include "server/config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "engine/served_name.h"
#include "server/concat.h"
#include "server/json.h"
#include "server/read_file.h"

namespace refrain::server {
namespace {

// A larger one is a mistake.
constexpr size_t kMaxFileBytes = 1 << 20;

absl::Status UnknownKey(std::string_view name) {
  if (name.empty()) {
    return absl::InvalidArgumentError("a config key has no name; --help lists those there are");
  }
  const std::optional<std::string_view> near = NearConfigKey(name);
  return absl::InvalidArgumentError(Concat("config key \"", name, "\" is unknown; ",
                                           near.has_value()
                                               ? Concat("did you mean \"", *near, "\"?")
                                               : std::string("--help lists those there are")));
}

// The text that ParseConfigValue reads, when the JSON type fits the key.
absl::StatusOr<std::string> ScalarText(const ConfigKey& key, const Json& given) {
  Json value = given;
  const std::optional<int64_t> integer = IntegerValue(given);
  if (integer.has_value() && key.kind != KeyKind::kSeconds) value = *integer;
  const bool fits = [&] {
    switch (key.kind) {
      case KeyKind::kInteger:
        return value.is_number_integer();
      case KeyKind::kSize:
        return value.is_number_integer() || value.is_string();
      case KeyKind::kSeconds:
        return value.is_number();
      case KeyKind::kSwitch:
        return value.is_boolean() || value.is_string();
      case KeyKind::kChoice:
        return value.is_number_integer() || value.is_string();
      case KeyKind::kText:
        break;
    }
    return value.is_string();
  }();
  if (!fits) {
    return absl::InvalidArgumentError(Concat("config key \"", key.name, "\": ", ShownValue(given),
                                             " is not valid; expected ", ValidValues(key)));
  }
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return std::string(value.get<bool>() ? "on" : "off");
  return value.dump();
}

constexpr std::string_view kUsage =
    R"(usage: refraind [serve] --model PATH [options]

Serves a Llama-family model over an OpenAI-style HTTP API and gRPC.

  --model PATH          GGUF file or Hugging Face folder (model.path)
  --config FILE         JSON configuration; // comments are allowed
  --listen HOST:PORT    HTTP address (server.http_listen); "" = off
  --grpc-listen H:P     gRPC address (server.grpc_listen); "" = off
  --set KEY=VALUE       sets one key; may be repeated, wins over the file
  --check-config        checks the configuration and exits: 0 good, 2 not
  --version             prints the version and exits
  --help                prints this and exits

Configuration keys, with defaults:
)";

struct Flag {
  std::string_view name;
  std::string_view key;
};
constexpr Flag kKeyFlags[] = {
    {"--model", "model.path"},
    {"--listen", "server.http_listen"},
    {"--grpc-listen", "server.grpc_listen"},
};

// What stands on the command line, before any of it is applied.
struct Flags {
  CommandLine::Action action = CommandLine::Action::kServe;
  std::optional<std::string> config_path;
  std::vector<std::pair<std::string, std::string>> overrides;  // win over the file, in order
};

// `--flag VALUE` and `--flag=VALUE`.
absl::Status AddValueFlag(std::string_view flag, std::string_view value, Flags* flags) {
  if (flag == "--config") {
    // A variable of a script that is empty would else start a server without keys.
    if (value.empty()) return absl::InvalidArgumentError("--config names no file; see --help");
    flags->config_path = std::string(value);
    return absl::OkStatus();
  }
  if (flag == "--set") {
    const size_t split = value.find('=');
    if (split == std::string_view::npos) {
      return absl::InvalidArgumentError(Concat("--set \"", value, "\": expected KEY=VALUE"));
    }
    flags->overrides.emplace_back(value.substr(0, split), value.substr(split + 1));
    return absl::OkStatus();
  }
  for (const Flag& known : kKeyFlags) {
    if (known.name == flag) flags->overrides.emplace_back(known.key, value);
  }
  return absl::OkStatus();
}

bool TakesValue(std::string_view flag) {
  return flag == "--config" || flag == "--set" ||
         std::any_of(std::begin(kKeyFlags), std::end(kKeyFlags),
                     [&](const Flag& known) { return known.name == flag; });
}

absl::StatusOr<Flags> ReadFlags(std::span<const char* const> arguments) {
  Flags flags;
  if (!arguments.empty() && std::string_view(arguments[0]) == "serve") {
    arguments = arguments.subspan(1);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h" || argument == "--version") {
      flags.action =
          argument == "--version" ? CommandLine::Action::kVersion : CommandLine::Action::kHelp;
      return flags;
    }
    if (argument == "--check-config") {
      flags.action = CommandLine::Action::kCheckConfig;
      continue;
    }
    const std::string_view flag = argument.substr(0, argument.find('='));
    if (!TakesValue(flag)) {
      return absl::InvalidArgumentError(Concat("unknown argument \"", argument, "\"; see --help"));
    }
    std::string_view value;
    if (flag.size() < argument.size()) {
      value = argument.substr(flag.size() + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return absl::InvalidArgumentError(Concat(flag, " needs a value; see --help"));
    }
    if (absl::Status status = AddValueFlag(flag, value, &flags); !status.ok()) return status;
  }
  return flags;
}

bool IsSection(std::string_view name) {
  return std::any_of(ConfigKeys().begin(), ConfigKeys().end(), [&](const ConfigKey& key) {
    return key.name.substr(0, key.name.find('.')) == name;
  });
}

// Bodies, of each front end, once more conversations and answers, streams that are not read, and
// gRPC's connections.
int64_t BytesOfLimits(const Config& config) {
  const int64_t bodies = config.integer("limits.bodies_bytes");
  int64_t bytes = bodies + config.integer("limits.unread_bytes");
  if (!config.text("server.http_listen").empty()) bytes += bodies;
  if (!config.text("server.grpc_listen").empty()) {
    bytes += bodies + config.integer("limits.grpc_memory_bytes");
  }
  return bytes;
}

}  // namespace

Config::Config() {
  for (const ConfigKey& key : ConfigKeys()) {
    values_.emplace(key.name, *ParseConfigValue(key, key.default_text));
  }
}

absl::Status Config::ApplyFile(std::string_view json_text, std::string_view origin) {
  const auto in_file = [&](const absl::Status& status) {
    return absl::Status(status.code(), Concat(origin, ": ", status.message()));
  };
  const absl::StatusOr<Json> document =
      ParseJson(json_text, {.max_depth = 8, .allow_comments = true});
  if (!document.ok()) return in_file(document.status());
  if (!document->is_object()) {
    return in_file(absl::InvalidArgumentError("a configuration file holds one JSON object"));
  }
  Config changed = *this;
  std::vector<std::string> given;
  const auto set = [&](const ConfigKey& key, const Json& value) {
    if (std::find(given.begin(), given.end(), key.name) != given.end()) {
      return absl::InvalidArgumentError(Concat("config key \"", key.name, "\" is there twice"));
    }
    given.emplace_back(key.name);
    const absl::StatusOr<std::string> text = ScalarText(key, value);
    return text.ok() ? changed.Set(key.name, *text) : text.status();
  };
  for (const auto& [section, members] : document->items()) {
    // As --set and the documentation write it.
    if (const ConfigKey* key = FindConfigKeyOrNull(section); key != nullptr) {
      if (const absl::Status status = set(*key, members); !status.ok()) return in_file(status);
      continue;
    }
    if (!IsSection(section) && (!members.is_object() || members.empty())) {
      return in_file(UnknownKey(section));
    }
    if (!members.is_object()) {
      return in_file(absl::InvalidArgumentError(
          Concat("\"", section, "\" holds no object of keys but ", members.type_name())));
    }
    for (const auto& [name, value] : members.items()) {
      const std::string key_name = Concat(section, ".", name);
      const ConfigKey* key = FindConfigKeyOrNull(key_name);
      if (key == nullptr) return in_file(UnknownKey(key_name));
      if (const absl::Status status = set(*key, value); !status.ok()) return in_file(status);
    }
  }
  *this = std::move(changed);
  return absl::OkStatus();
}

absl::Status Config::Set(std::string_view name, std::string_view text) {
  const ConfigKey* key = FindConfigKeyOrNull(name);
  if (key == nullptr) return UnknownKey(name);
  absl::StatusOr<ConfigValue> value = ParseConfigValue(*key, text);
  if (!value.ok()) return value.status();
  values_.find(name)->second = *std::move(value);
  return absl::OkStatus();
}

absl::Status Config::Validate() const {
  if (text("model.path").empty()) {
    return absl::InvalidArgumentError(
        "config key \"model.path\" is empty: say which model to serve, with --model PATH");
  }
  if (const absl::Status name = engine::CheckServedName(text("model.served_name")); !name.ok()) {
    return absl::InvalidArgumentError(Concat("config key \"model.served_name\": ", name.message()));
  }
  for (const char* key : {"server.http_listen", "server.grpc_listen"}) {
    if (text(key).empty()) continue;  // off
    const absl::StatusOr<ListenAddress> address = ParseListenAddress(text(key));
    if (!address.ok()) {
      return absl::InvalidArgumentError(
          Concat("config key \"", key, "\": ", address.status().message()));
    }
  }
  if (text("server.http_listen").empty() && text("server.grpc_listen").empty()) {
    return absl::InvalidArgumentError(
        "config keys \"server.http_listen\" and \"server.grpc_listen\" are both empty: one is "
        "needed");
  }
  if (const auto http = ParseListenAddress(text("server.http_listen")),
      grpc = ParseListenAddress(text("server.grpc_listen"));
      http.ok() && grpc.ok() && http->port != 0 && http->port == grpc->port &&
      http->host == grpc->host) {
    return absl::InvalidArgumentError(
        Concat("config keys \"server.http_listen\" and \"server.grpc_listen\" are both ",
               AddressText(*http), ": each needs an address of its own"));
  }
  if (text("tls.cert_file").empty() != text("tls.key_file").empty()) {
    return absl::InvalidArgumentError(
        "config keys \"tls.cert_file\" and \"tls.key_file\" go together: one of them is empty");
  }
  if (text("kv_cache.isolation") == "api_key" && text("auth.keys_file").empty()) {
    return absl::InvalidArgumentError(
        "config key \"kv_cache.isolation\" is \"api_key\", which needs \"auth.keys_file\"");
  }
  if (on("log.prompts") && text("log.requests_file").empty()) {
    return absl::InvalidArgumentError(
        "config key \"log.prompts\" is on, which needs \"log.requests_file\"");
  }
  if (integer("engine.step_token_budget") < integer("engine.max_sequences")) {
    return absl::InvalidArgumentError(
        Concat("config key \"engine.step_token_budget\" is ", integer("engine.step_token_budget"),
               ", less than \"engine.max_sequences\", which is ", integer("engine.max_sequences"),
               ": every running sequence needs a token a step"));
  }
  if (integer("limits.bodies_bytes") < integer("limits.body_bytes")) {
    return absl::InvalidArgumentError(
        Concat("config key \"limits.bodies_bytes\" is ", integer("limits.bodies_bytes"),
               ", less than \"limits.body_bytes\", which is ", integer("limits.body_bytes")));
  }
  return absl::OkStatus();
}

int64_t Config::integer(std::string_view key) const {
  return std::get<int64_t>(values_.find(key)->second);
}
double Config::seconds(std::string_view key) const {
  return std::get<double>(values_.find(key)->second);
}
bool Config::on(std::string_view key) const { return std::get<bool>(values_.find(key)->second); }
const std::string& Config::text(std::string_view key) const {
  return std::get<std::string>(values_.find(key)->second);
}

engine::EngineOptions Config::EngineOptions() const {
  engine::EngineOptions options;
  options.model.path = text("model.path");
  options.model.served_name = text("model.served_name");
  options.model.chat_template_file = text("model.chat_template_file");
  options.model.own_sampling_defaults = text("model.sampling_defaults") == "model";
  options.model.finds_reasoning = text("model.reasoning") == "auto";
  const std::string& second_copy = text("model.second_copy");
  options.model.second_copy = second_copy == "on"    ? engine::SecondCopyOption::kOn
                              : second_copy == "off" ? engine::SecondCopyOption::kOff
                                                     : engine::SecondCopyOption::kAuto;
  options.backend.kind = text("backend.kind");
  options.backend.device = static_cast<int32_t>(integer("backend.device"));
  options.backend.threads = static_cast<int32_t>(integer("backend.threads"));
  options.backend.isa = text("backend.isa");
  options.backend.compute_dtype = text("backend.compute_dtype");
  options.backend.product_library = text("backend.product_library") == "auto";
  options.kv_cache.memory_bytes = integer("kv_cache.memory_bytes");
  options.kv_cache.chunk_tokens = std::stoi(text("kv_cache.chunk_tokens"));
  options.kv_cache.dtype = text("kv_cache.dtype");
  options.kv_cache.prefix_cache = on("kv_cache.prefix_cache");
  options.kv_cache.eviction = text("kv_cache.eviction");
  options.kv_cache.isolation = text("kv_cache.isolation");
  options.limits.queued_requests = static_cast<int32_t>(integer("limits.queued_requests"));
  options.limits.queued_tokens = integer("limits.queued_tokens");
  options.limits.request_timeout_s = seconds("limits.request_timeout_s");
  options.limits.n = static_cast<int32_t>(integer("limits.n"));
  options.limits.server_bytes = BytesOfLimits(*this);
  options.max_sequences = static_cast<int32_t>(integer("engine.max_sequences"));
  options.step_token_budget = static_cast<int32_t>(integer("engine.step_token_budget"));
  options.max_context_tokens = static_cast<int32_t>(integer("engine.max_context_tokens"));
  const std::string& policy = text("engine.policy");
  options.policy = policy == "longest_prefix" ? engine::Policy::kLongestPrefix
                   : policy == "priority"     ? engine::Policy::kPriority
                                              : engine::Policy::kFcfs;
  options.reproducible = on("engine.reproducible");
  options.stall_s = seconds("engine.stall_s");
  options.attention_mode = text("attention.mode") == "paged"
                               ? engine::AttentionModeOption::kPaged
                               : engine::AttentionModeOption::kTwoPhase;
  options.encode_threads = static_cast<int32_t>(integer("server.encode_threads"));
  return options;
}

LogFormat Config::log_format() const {
  return text("log.format") == "json" ? LogFormat::kJson : LogFormat::kText;
}

LogLevel Config::log_level() const {
  const std::string& level = text("log.level");
  if (level == "trace") return LogLevel::kTrace;
  if (level == "debug") return LogLevel::kDebug;
  if (level == "warn") return LogLevel::kWarn;
  if (level == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  const auto refuse = [&] {
    return absl::InvalidArgumentError(
        Concat("\"", text, "\" is not an address; expected HOST:PORT or [IPV6]:PORT"));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return refuse();
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse();
  }
  ListenAddress address;
  const auto parsed =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), address.port);
  if (host.empty() || port_text.empty() || parsed.ec != std::errc() ||
      parsed.ptr != port_text.data() + port_text.size()) {
    return refuse();
  }
  address.host = std::string(host);
  return address;
}

std::string AddressText(const ListenAddress& address) {
  const bool ip6 = address.host.find(':') != std::string::npos;
  return Concat(ip6 ? "[" : "", address.host, ip6 ? "]:" : ":", address.port);
}

absl::StatusOr<CommandLine> ParseCommandLine(std::span<const char* const> arguments) {
  const absl::StatusOr<Flags> flags = ReadFlags(arguments);
  if (!flags.ok()) return flags.status();
  CommandLine line;
  line.action = flags->action;
  if (line.action == CommandLine::Action::kHelp || line.action == CommandLine::Action::kVersion) {
    return line;
  }
  if (flags->config_path.has_value()) {
    const absl::StatusOr<std::string> text =
        ReadFile("the configuration file", *flags->config_path, kMaxFileBytes);
    if (!text.ok()) return text.status();
    if (absl::Status status = line.config.ApplyFile(*text, *flags->config_path); !status.ok()) {
      return status;
    }
  }
  for (const auto& [key, value] : flags->overrides) {
    if (absl::Status status = line.config.Set(key, value); !status.ok()) return status;
  }
  if (absl::Status status = line.config.Validate(); !status.ok()) return status;
  return line;
}

std::string HelpText() {
  std::string help(kUsage);
  std::string_view section;
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string_view key_section = key.name.substr(0, key.name.find('.'));
    if (key_section != section) ConcatTo(&help, "\n");
    section = key_section;
    const std::string_view shown = key.default_text.empty() ? "\"\"" : key.default_text;
    ConcatTo(&help, "  ", key.name, " = ", shown, "\n      ", key.meaning);
    if (key.kind != KeyKind::kText) ConcatTo(&help, " (", ValidValues(key), ")");
    if (!key.available) ConcatTo(&help, " [not available in this build]");
    ConcatTo(&help, "\n");
  }
  return help;
}

}  // namespace refrain::server
