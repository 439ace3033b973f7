#include "server/config_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_split.h"
#include "server/concat.h"

namespace refrain::server {
namespace {

constexpr double kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr double kKiB = 1024.0;
constexpr double kTiB = kKiB * kKiB * kKiB * kKiB;

constexpr ConfigKey Integer(std::string_view name, std::string_view value, double min, double max,
                            std::string_view meaning) {
  return {name, KeyKind::kInteger, value, min, max, "", meaning};
}
constexpr ConfigKey Size(std::string_view name, std::string_view value, double min, double max,
                         std::string_view meaning) {
  return {name, KeyKind::kSize, value, min, max, "", meaning};
}
constexpr ConfigKey Seconds(std::string_view name, std::string_view value, double max,
                            std::string_view meaning) {
  return {name, KeyKind::kSeconds, value, 0, max, "", meaning};
}
constexpr ConfigKey OnOff(std::string_view name, std::string_view value, std::string_view meaning) {
  return {name, KeyKind::kSwitch, value, 0, 0, "on off", meaning};
}
constexpr ConfigKey Choice(std::string_view name, std::string_view value, std::string_view choices,
                           std::string_view meaning) {
  return {name, KeyKind::kChoice, value, 0, 0, choices, meaning};
}
constexpr ConfigKey Text(std::string_view name, std::string_view value, std::string_view meaning) {
  return {name, KeyKind::kText, value, 0, 0, "", meaning};
}
constexpr ConfigKey NotYet(ConfigKey key) {
  key.available = false;
  return key;
}

constexpr std::array kKeys = {
    Text("model.path", "", "GGUF file or Hugging Face folder; required (--model)"),
    Text("model.served_name", "",
         "the name clients use, UTF-8 without control characters; empty = from the path"),
    Text("model.chat_template_file", "",
         "file of a chat template (Jinja) to use in place of the model's own; empty = the model's"),
    Choice(
        "model.reasoning", "auto", "auto off",
        "auto: what a model thinks in front of its answer is told apart from it in chats and "
        "responses, if its chat template has the closing tag of thoughts; off: it is part of the "
        "answer"),
    Choice("model.sampling_defaults", "model", "model openai",
           "what sampling parameters are that a request leaves out: as the model's files ask for "
           "(generation_config.json, or general.sampling keys of a GGUF file), or OpenAI's"),
    Choice("model.second_copy", "auto", "auto on off",
           "second copy of the layers' quantised weights, in f16, for products of many rows: on a "
           "GPU, and in plain C++ (backend.isa portable); auto: where it was measured to be faster "
           "(not yet on a GPU) and fits into a tenth of the free memory"),

    Text("server.http_listen", "127.0.0.1:8000",
         "HOST:PORT of the HTTP server (--listen); port 0 = any free one; empty = off"),
    Text("server.grpc_listen", "127.0.0.1:8001",
         "HOST:PORT of the gRPC server (--grpc-listen); port 0 = any free one; empty = off"),
    OnOff("server.debug", "off", "debug endpoints (/debug/cache)"),
    OnOff("server.tokenizer_info", "off",
          "/tokenizer_info, which shows the chat template and the special tokens"),
    Integer("server.io_threads", "2", 1, 64, "threads that serve sockets"),
    Integer("server.encode_threads", "1", 1, 64, "threads that run templates and tokenizers"),

    Choice("backend.kind", "auto", "auto cpu cuda reference", "where the model computes"),
    Integer("backend.device", "0", 0, 63, "which GPU"),
    Integer("backend.threads", "0", 0, 1024,
            "compute threads; 0 = the cores this process may use (affinity, CPU quota)"),
    Choice("backend.isa", "auto",
           "auto portable avx2 avx_vnni avx512 avx512_vnni avx512_bf16 amx sm_80",
           "instruction-set level of the processor, or sm_80: a GPU without what only Hopper has; "
           "auto = the fastest"),
    Choice(
        "backend.compute_dtype", "auto", "auto f32 bf16 quantized int8",
        "arithmetic of matrix products; with quantised weights auto: activations of 15 bits, of 8 "
        "behind the first 64 positions in all but the last layers; quantized: of 15; int8: of 8"),
    Choice(
        "backend.product_library", "auto", "auto off",
        "cuBLASLt for matrix products on a GPU: auto = where it is installed and measured faster "
        "at the start, never under engine.reproducible or in f32"),

    Integer("engine.max_sequences", "64", 1, 65536, "sequences that run at once"),
    Integer("engine.step_token_budget", "512", 1, 1048576, "tokens computed per step"),
    Integer("engine.max_context_tokens", "0", 0, kMaxInt32,
            "tokens of prompt and answer together; 0 = the model's limit, or what the KV cache "
            "holds if that is less; at most what the model's RoPE scaling reaches"),
    Choice("engine.policy", "fcfs", "fcfs longest_prefix priority", "which request runs next"),
    OnOff("engine.reproducible", "off",
          "a request's tokens do not depend on what else runs; costs speed, and what was generated "
          "for earlier turns is encoded again, so that the cache may not have it"),
    Seconds("engine.stall_s", "300", 1e6,
            "seconds with work and without a finished step after which the engine counts as "
            "stalled (/health); 0 = never"),
    NotYet(Choice("engine.context_overflow", "reject",
                  "reject truncate_oldest_half truncate_oldest_turns",
                  "what happens to a prompt that is too long")),

    Choice("attention.mode", "two_phase", "two_phase paged",
           "two_phase reads shared chunks once per step; paged is the baseline"),

    Size("kv_cache.memory_bytes", "0", 0, 1024 * kTiB,
         "bytes of KV cache; 0 = a share of free memory"),
    Choice("kv_cache.chunk_tokens", "64", "16 32 64 128", "tokens per chunk"),
    Choice(
        "kv_cache.dtype", "auto", "auto f32 f16 bf16 fp8_e4m3 fp8",
        "element type of K and V; fp8_e4m3 (fp8 for short) has half the bytes of f16 and bf16 and "
        "a larger error (docs/operations.md); auto = f16 or bf16, whichever the level prefers, for "
        "models with biases (Qwen2) f16"),
    OnOff("kv_cache.prefix_cache", "on", "share the KV cache of equal prefixes"),
    Choice("kv_cache.eviction", "reuse_rate", "lru s3fifo reuse_rate",
           "which unused chunks go first (docs/cachesim.md)"),
    Choice("kv_cache.isolation", "none", "none api_key", "who may share chunks with whom"),

    NotYet(Size("host_tier.bytes", "0", 0, 1024 * kTiB, "bytes of host memory tier; 0 = off")),
    NotYet(Text("disk_tier.path", "", "directory of the disk tier; empty = off")),
    NotYet(Size("disk_tier.bytes", "0", 0, 1024 * kTiB, "bytes of the disk tier")),
    NotYet(Seconds("session.ttl_s", "0", 1e9, "seconds an idle session is kept; 0 = no limit")),
    NotYet(OnOff("prefetch.enabled", "off", "load sessions of waiting requests ahead of time")),

    Integer("limits.queued_requests", "1024", 1, 1000000, "waiting requests; more get 429"),
    Integer("limits.queued_tokens", "4194304", 1, 1e12,
            "prompt tokens of all waiting requests; more get 429"),
    Seconds("limits.request_timeout_s", "0", 1e6, "seconds a request may take; 0 = no limit"),
    Integer("limits.per_key_requests", "0", 0, 1000000,
            "requests at once per API key; 0 = no limit"),
    Seconds("limits.per_key_tokens_per_s", "0", 1e9, "tokens per second per API key; 0 = no limit"),
    Size("limits.body_bytes", "16MiB", 1024, 1024 * kKiB * kKiB, "bytes of a request body"),
    Size("limits.bodies_bytes", "256MiB", 1024, 1024 * 1024 * kKiB * kKiB,
         "bytes of all request bodies over 16 KiB that are read, parsed or wait to be encoded; as "
         "many again of conversations and lists in memory and of answers sent as a whole or by "
         "/v1/responses; more get "
         "503"),
    Size("limits.header_bytes", "32KiB", 1024, 1024 * kKiB, "bytes of a request's header"),
    Size("limits.answer_bytes_per_s", "8KiB", 0, kKiB* kKiB* kKiB,
         "bytes per second that an HTTP client reads at least of what is ready of its answer, from "
         "120 s on, else its connection ends; 0 = no limit but 64 KiB in 120 s"),
    Size("limits.unread_bytes", "256MiB", 1024 * kKiB, 1024 * 1024 * kKiB * kKiB,
         "bytes of generated tokens that wait for clients to read them, small amounts apart; "
         "beyond, the answers that were not read for longest are cut"),
    Seconds("limits.http_idle_s", "120", 1e6,
            "seconds an HTTP connection is kept without a request; 0 = no limit"),
    Integer("limits.grpc_calls_per_connection", "1024", 1, 65536,
            "calls at once on one gRPC connection; its client keeps more waiting"),
    Size("limits.grpc_memory_bytes", "1GiB", 16 * kKiB * kKiB, kTiB,
         "bytes of memory for all gRPC connections and messages, about; beyond, calls are refused"),
    Integer("limits.grpc_connections", "10000", 1, 1000000,
            "gRPC connections at once; more are closed"),
    Seconds("limits.grpc_idle_s", "300", 1e6,
            "seconds a gRPC connection is kept without a call; 0 = no limit"),
    Seconds("limits.grpc_age_s", "0", 1e6,
            "seconds after which a gRPC connection takes no more calls; 0 = no limit"),
    Integer("limits.n", "128", 1, 1024, "choices per request"),
    Seconds("limits.drain_s", "30", 86400, "seconds running requests get after SIGTERM"),
    Seconds("limits.drain_notice_s", "0", 3600,
            "seconds at least from SIGTERM to the exit, in which /ready and new requests get 503"),

    Text("auth.keys_file", "", "file of API keys (refraind make-key); empty = no keys asked"),
    Text("auth.admin_keys_file", "", "file of administration keys; empty = none"),
    Text("tls.cert_file", "", "certificate chain in PEM; empty = no TLS"),
    Text("tls.key_file", "", "private key in PEM"),
    Text("http.cors_origins", "", "origins that browsers may call from; empty = none"),
    Text("http.allowed_hosts", "",
         "without keys: names that HTTP clients may call this server by, beside localhost, IP "
         "addresses and that of server.http_listen; * = all; empty = no others on a loopback "
         "address, all elsewhere"),
    Seconds(
        "http.sse_ping_s", "0", 1e6,
        "seconds without a byte of a stream after which HTTP sends a comment, so that proxies and "
        "clients go on waiting; 0 = off"),

    Choice("log.format", "text", "text json", "lines for people or JSON lines"),
    Choice("log.level", "info", "trace debug info warn error", "least severity that is logged"),
    OnOff("log.prompts", "off", "write request bodies, with the prompts, to log.requests_file"),
    Text("log.requests_file", "", "file of one JSON line per request; empty = off"),

    NotYet(Text("modules.directory", "", "directory of prompt modules (PML); empty = off")),
    NotYet(Choice("modules.mode", "isolated", "isolated in_document", "how modules are encoded")),
    NotYet(Choice("modules.relink", "none", "none first_k top_r full",
                  "which module tokens are computed again in context")),
};

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

std::string NumberText(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return Concat(static_cast<int64_t>(value));
  }
  return Concat(value);
}

template <typename Number>
bool ParseWhole(std::string_view text, Number* value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && !text.empty();
}

bool ParseSize(std::string_view text, int64_t* bytes) {
  struct Unit {
    std::string_view suffix;
    int shift;
  };
  constexpr Unit kUnits[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}};
  int shift = 0;
  for (const Unit& unit : kUnits) {
    if (text.size() > unit.suffix.size() && text.ends_with(unit.suffix)) {
      text.remove_suffix(unit.suffix.size());
      shift = unit.shift;
      break;
    }
  }
  if (!ParseWhole(text, bytes)) return false;
  if (*bytes < 0 || *bytes > (std::numeric_limits<int64_t>::max() >> shift)) return false;
  *bytes <<= shift;
  return true;
}

}  // namespace

std::span<const ConfigKey> ConfigKeys() { return kKeys; }

const ConfigKey* FindConfigKeyOrNull(std::string_view name) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(),
                                  [&](const ConfigKey& key) { return key.name == name; });
  return found == kKeys.end() ? nullptr : &*found;
}

std::optional<std::string_view> NearConfigKey(std::string_view name) {
  constexpr size_t kMostBytes = 100;  // no key has as many
  if (name.size() > kMostBytes) return std::nullopt;
  std::optional<std::string_view> near;
  int least = std::numeric_limits<int>::max();
  for (const ConfigKey& key : kKeys) {
    const bool lacks_section = key.name.ends_with(Concat(".", name));
    const int distance = lacks_section ? 0 : EditDistance(name, key.name);
    const bool is_like = distance <= static_cast<int>(std::max(name.size(), key.name.size()) / 3);
    if (!is_like || distance >= least) continue;
    near = key.name;
    least = distance;
  }
  return near;
}

std::string ValidValues(const ConfigKey& key) {
  const std::string range = Concat(" from ", NumberText(key.min), " to ", NumberText(key.max));
  switch (key.kind) {
    case KeyKind::kInteger:
      return Concat("an integer", range);
    case KeyKind::kSize:
      return Concat("bytes", range, ", also written as 512MiB");
    case KeyKind::kSeconds:
      return Concat("a number", range);
    case KeyKind::kSwitch:
    case KeyKind::kChoice:
      return Concat("one of: ", key.choices);
    case KeyKind::kText:
      break;
  }
  return "text";
}

absl::StatusOr<ConfigValue> ParseConfigValue(const ConfigKey& key, std::string_view text) {
  const auto refuse = [&]() -> absl::Status {
    return absl::InvalidArgumentError(Concat("config key \"", key.name, "\": \"", text,
                                             "\" is not valid; expected ", ValidValues(key)));
  };
  const auto in_range = [&](double value) { return value >= key.min && value <= key.max; };
  ConfigValue value;
  switch (key.kind) {
    case KeyKind::kInteger: {
      int64_t number = 0;
      if (!ParseWhole(text, &number) || !in_range(static_cast<double>(number))) return refuse();
      value = number;
      break;
    }
    case KeyKind::kSize: {
      int64_t bytes = 0;
      if (!ParseSize(text, &bytes) || !in_range(static_cast<double>(bytes))) return refuse();
      value = bytes;
      break;
    }
    case KeyKind::kSeconds: {
      double seconds = 0;
      if (!ParseWhole(text, &seconds) || !in_range(seconds)) return refuse();
      value = seconds;
      break;
    }
    case KeyKind::kSwitch:
      if (text != "on" && text != "off") return refuse();
      value = text == "on";
      break;
    case KeyKind::kChoice: {
      const std::vector<std::string> choices =
          absl::StrSplit(absl::string_view(key.choices.data(), key.choices.size()), ' ');
      if (std::find(choices.begin(), choices.end(), text) == choices.end()) return refuse();
      value = std::string(text);
      break;
    }
    case KeyKind::kText:
      value = std::string(text);
      break;
  }
  if (!key.available) {
    const absl::StatusOr<ConfigValue> default_value = [&] {
      ConfigKey plain = key;
      plain.available = true;
      return ParseConfigValue(plain, key.default_text);
    }();
    if (!default_value.ok() || *default_value != value) {
      return absl::InvalidArgumentError(Concat("config key \"", key.name, "\": \"", text,
                                               "\" is not available in this build; only \"",
                                               key.default_text, "\" is"));
    }
  }
  return value;
}

}  // namespace refrain::server
