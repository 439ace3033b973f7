#include "server/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "server/concat.h"

namespace refrain::server {
namespace {

std::string ErrorOf(const absl::Status& status) {
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

std::string Fixture(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(ConfigKeys, HaveUniqueNamesAndValidDefaults) {
  std::set<std::string_view> names;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_EQ(std::count(key.name.begin(), key.name.end(), '.'), 1) << key.name;
    EXPECT_TRUE(ParseConfigValue(key, key.default_text).ok()) << key.name;
    EXPECT_FALSE(key.meaning.empty()) << key.name;
  }
}

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// configs/refraind.json shows every key with its default and, above it, what --help says of it.
TEST(ConfigFile, SaysOfEveryKeyWhatTheDaemonKnows) {
  std::vector<std::string> expected;
  std::string_view section;
  for (const ConfigKey& key : ConfigKeys()) {
    const size_t dot = key.name.find('.');
    if (const std::string_view its = key.name.substr(0, dot); its != section) {
      if (!section.empty()) expected.emplace_back("  },");
      expected.push_back(Concat("  \"", its, "\": {"));
      section = its;
    } else {
      expected.back() += ',';
    }
    expected.push_back(Concat("    // ", key.meaning, key.available ? "" : " (not yet)"));
    if (key.kind != KeyKind::kText) expected.push_back(Concat("    // ", ValidValues(key)));
    const bool is_number = key.kind == KeyKind::kInteger || key.kind == KeyKind::kSeconds ||
                           (key.kind == KeyKind::kSize && key.default_text == "0");
    const char* const quote = is_number ? "" : "\"";
    expected.push_back(
        Concat("    \"", key.name.substr(dot + 1), "\": ", quote, key.default_text, quote));
  }
  std::vector<std::string> lines = LinesOf("configs/refraind.json");
  const auto begin = std::find(lines.begin(), lines.end(), "{");
  ASSERT_NE(begin, lines.end());
  lines.erase(lines.begin(), begin + 1);
  expected.insert(expected.end(), {"  }", "}"});
  for (size_t i = 0; i < std::min(lines.size(), expected.size()); ++i) {
    ASSERT_EQ(lines[i], expected[i]);
  }
  EXPECT_EQ(lines.size(), expected.size());
}

TEST(ConfigFile, IsAccepted) {
  std::ifstream file("configs/refraind.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Config config;
  const absl::Status status = config.ApplyFile(text, "refraind.json");
  EXPECT_TRUE(status.ok()) << status;
}

// The page has links where --help has none, in round brackets or behind a semicolon.
std::string WithoutLinks(std::string text) {
  text = std::regex_replace(text, std::regex(R"(;? \[[^\]]*\]\([^)]*\))"), "");
  return std::regex_replace(text, std::regex(R"( \((\[[^\]]*\]\([^)]*\)|docs/[^)]*)\))"), "");
}

TEST(ConfigDocs, SayOfEveryKeyWhatTheDaemonKnows) {
  std::vector<std::string> rows;
  for (const std::string& line : LinesOf("docs/configuration.md")) {
    if (line.starts_with("| `")) rows.push_back(WithoutLinks(line));
  }
  ASSERT_EQ(rows.size(), ConfigKeys().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const ConfigKey& key = ConfigKeys()[i];
    const std::string_view shown = key.default_text.empty() ? "\"\"" : key.default_text;
    EXPECT_EQ(rows[i], Concat("| `", key.name, "` | `", shown, "` | ", ValidValues(key), " | ",
                              WithoutLinks(std::string(key.meaning)),
                              key.available ? "" : " *(not yet)*", " |"));
  }
}

TEST(Config, TellsTheEngineWhatTheLimitsPermit) {
  Config config;
  EXPECT_EQ(config.EngineOptions().limits.server_bytes, (4 * int64_t{256} << 20) + (1 << 30));
  ASSERT_TRUE(config.Set("server.grpc_listen", "").ok());
  EXPECT_EQ(config.EngineOptions().limits.server_bytes, 3 * int64_t{256} << 20);
  ASSERT_TRUE(config.Set("limits.bodies_bytes", "64MiB").ok());
  EXPECT_EQ(config.EngineOptions().limits.server_bytes, (2 * 64 + 256) << 20);
  ASSERT_TRUE(config.Set("limits.unread_bytes", "32MiB").ok());
  EXPECT_EQ(config.EngineOptions().limits.server_bytes, (2 * 64 + 32) << 20);
}

TEST(Config, DefaultsAreThoseOfTheEngine) {
  const engine::EngineOptions from_config = Config().EngineOptions();
  const engine::EngineOptions own;
  EXPECT_EQ(from_config.max_sequences, own.max_sequences);
  EXPECT_EQ(from_config.step_token_budget, own.step_token_budget);
  EXPECT_EQ(from_config.max_context_tokens, own.max_context_tokens);
  EXPECT_EQ(from_config.policy, own.policy);
  EXPECT_EQ(from_config.reproducible, own.reproducible);
  EXPECT_EQ(from_config.attention_mode, own.attention_mode);
  EXPECT_EQ(from_config.encode_threads, own.encode_threads);
  EXPECT_EQ(from_config.backend.kind, own.backend.kind);
  EXPECT_EQ(from_config.backend.isa, own.backend.isa);
  EXPECT_EQ(from_config.backend.compute_dtype, own.backend.compute_dtype);
  EXPECT_EQ(from_config.kv_cache.memory_bytes, own.kv_cache.memory_bytes);
  EXPECT_EQ(from_config.kv_cache.chunk_tokens, own.kv_cache.chunk_tokens);
  EXPECT_EQ(from_config.kv_cache.dtype, own.kv_cache.dtype);
  EXPECT_EQ(from_config.kv_cache.prefix_cache, own.kv_cache.prefix_cache);
  EXPECT_EQ(from_config.kv_cache.eviction, own.kv_cache.eviction);
  EXPECT_EQ(from_config.limits.queued_requests, own.limits.queued_requests);
  EXPECT_EQ(from_config.limits.queued_tokens, own.limits.queued_tokens);
  EXPECT_EQ(from_config.limits.request_timeout_s, own.limits.request_timeout_s);
  EXPECT_EQ(from_config.limits.n, own.limits.n);
  EXPECT_EQ(from_config.stall_s, own.stall_s);
}

TEST(Config, HandsValuesToTheEngine) {
  Config config;
  ASSERT_TRUE(config
                  .ApplyFile(R"({ // comments are fine
    "model": {"path": "/m", "served_name": "x", "second_copy": "off",
              "chat_template_file": "/t", "reasoning": "off",
              "sampling_defaults": "openai"},
    "engine": {"max_sequences": 3, "policy": "priority", "reproducible": true,
               "stall_s": 2.5},
    "attention": {"mode": "paged"},
    "kv_cache": {"memory_bytes": "2GiB", "chunk_tokens": 32, "prefix_cache": "off",
                 "eviction": "s3fifo"},
    "limits": {"request_timeout_s": 1.5}
  })",
                             "f")
                  .ok());
  const engine::EngineOptions options = config.EngineOptions();
  EXPECT_EQ(options.model.path, "/m");
  EXPECT_EQ(options.model.served_name, "x");
  EXPECT_EQ(options.model.chat_template_file, "/t");
  EXPECT_FALSE(options.model.finds_reasoning);
  EXPECT_FALSE(options.model.own_sampling_defaults);
  EXPECT_EQ(options.model.second_copy, engine::SecondCopyOption::kOff);
  EXPECT_EQ(options.max_sequences, 3);
  EXPECT_EQ(options.policy, engine::Policy::kPriority);
  EXPECT_TRUE(options.reproducible);
  EXPECT_EQ(options.stall_s, 2.5);
  EXPECT_EQ(options.attention_mode, engine::AttentionModeOption::kPaged);
  EXPECT_EQ(options.kv_cache.memory_bytes, int64_t{2} << 30);
  EXPECT_EQ(options.kv_cache.chunk_tokens, 32);
  EXPECT_FALSE(options.kv_cache.prefix_cache);
  EXPECT_EQ(options.kv_cache.eviction, "s3fifo");
  EXPECT_EQ(options.limits.request_timeout_s, 1.5);
}

TEST(Config, RefusesUnknownKeysAndNamesTheNearest) {
  Config config;
  EXPECT_EQ(ErrorOf(config.Set("engine.max_sequencs", "1")),
            "config key \"engine.max_sequencs\" is unknown; did you mean "
            "\"engine.max_sequences\"?");
  EXPECT_EQ(ErrorOf(config.ApplyFile(R"({"limits":{"drain":1}})", "my.json")),
            "my.json: config key \"limits.drain\" is unknown; did you mean "
            "\"limits.drain_s\"?");
  EXPECT_EQ(ErrorOf(config.ApplyFile(R"({"limits":5})", "f")),
            "f: \"limits\" holds no object of keys but number");
  EXPECT_EQ(
      ErrorOf(config.ApplyFile(R"({"limit":5})", "f")).find("f: config key \"limit\" is unknown"),
      0u);
  EXPECT_EQ(
      ErrorOf(config.ApplyFile(R"({"limit":{}})", "f")).find("f: config key \"limit\" is unknown"),
      0u);
  EXPECT_EQ(ErrorOf(config.Set("max_sequences", "1")),
            "config key \"max_sequences\" is unknown; did you mean \"engine.max_sequences\"?");
  EXPECT_EQ(ErrorOf(config.Set("engine.max_seq", "1")),
            "config key \"engine.max_seq\" is unknown; did you mean \"engine.max_sequences\"?");
  for (const std::string name : {"foo.bar", "model", "x", "a.very.long.name.of.many.parts"}) {
    EXPECT_EQ(ErrorOf(config.Set(name, "1")),
              "config key \"" + name + "\" is unknown; --help lists those there are");
  }
  EXPECT_TRUE(config.ApplyFile(R"({"limits":{}})", "f").ok());
  EXPECT_EQ(ErrorOf(config.Set("", "x")), "a config key has no name; --help lists those there are");
  ErrorOf(config.ApplyFile(R"([])", "f"));
  ErrorOf(config.ApplyFile(R"({"limits":{"n":1,"n":2}})", "f"));
}

// As --set writes it, too; a key may be there once.
TEST(Config, AFileMayNameKeysWhole) {
  Config config;
  ASSERT_TRUE(
      config.ApplyFile(R"({"engine.max_sequences":32.0,"limits":{"n":3,"drain_s":2.5}})", "f")
          .ok());
  EXPECT_EQ(config.integer("engine.max_sequences"), 32);
  EXPECT_EQ(config.integer("limits.n"), 3);
  EXPECT_EQ(config.seconds("limits.drain_s"), 2.5);
  EXPECT_EQ(ErrorOf(config.ApplyFile(R"({"limits.n":4,"limits":{"n":4}})", "f")),
            "f: config key \"limits.n\" is there twice");
  EXPECT_EQ(config.integer("limits.n"), 3);
}

TEST(Config, ShowsValuesOfTheWrongType) {
  Config config;
  const auto error = [&](const char* file) { return ErrorOf(config.ApplyFile(file, "f")); };
  EXPECT_EQ(error(R"({"engine":{"max_sequences":32.5}})"),
            "f: config key \"engine.max_sequences\": 32.5 is not valid; expected an integer from 1 "
            "to 65536");
  EXPECT_NE(error(R"({"engine":{"max_sequences":"32"}})").find(": \"32\" is not valid;"),
            std::string::npos);
  EXPECT_NE(error(R"({"engine":{"max_sequences":[1]}})").find(": an array is not valid;"),
            std::string::npos);
  ASSERT_TRUE(config.ApplyFile(R"({"kv_cache":{"memory_bytes":1e9}})", "f").ok());
  EXPECT_EQ(config.integer("kv_cache.memory_bytes"), 1000000000);
}

struct BadValue {
  const char* key;
  const char* value;
  const char* mention;
};

TEST(Config, RefusesBadValuesAndSaysWhatIsValid) {
  const BadValue kBad[] = {
      {"server.io_threads", "0", "an integer from 1 to 64"},
      {"server.io_threads", "2.5", "an integer"},
      {"server.io_threads", "", "an integer"},
      {"server.io_threads", "99999999999999999999", "an integer"},
      {"engine.policy", "lifo", "one of: fcfs longest_prefix priority"},
      {"backend.isa", "mmx",
       "one of: auto portable avx2 avx_vnni avx512 avx512_vnni avx512_bf16 amx sm_80"},
      {"engine.reproducible", "yes", "one of: on off"},
      {"kv_cache.chunk_tokens", "48", "one of: 16 32 64 128"},
      {"kv_cache.memory_bytes", "-1", "bytes from 0"},
      {"kv_cache.memory_bytes", "5MB", "512MiB"},
      {"kv_cache.memory_bytes", "9999999999999GiB", "bytes"},
      {"limits.body_bytes", "1", "bytes from 1024"},
      {"limits.drain_s", "-1", "a number from 0 to 86400"},
      {"limits.drain_s", "nan", "a number"},
      {"log.level", "loud", "one of: trace debug info warn error"},
  };
  for (const BadValue& bad : kBad) {
    Config config;
    const std::string error = ErrorOf(config.Set(bad.key, bad.value));
    EXPECT_NE(error.find(bad.key), std::string::npos) << error;
    EXPECT_NE(error.find(bad.mention), std::string::npos) << error;
  }
}

TEST(Config, RefusesWrongJsonTypes) {
  for (const char* text :
       {R"({"server":{"io_threads":"2"}})", R"({"engine":{"reproducible":1}})",
        R"({"model":{"path":5}})", R"({"limits":{"drain_s":"5"}})", R"({"engine":{"policy":[]}})",
        R"({"server":{"io_threads":null}})", R"({"server":{"io_threads":2.5}})"}) {
    Config config;
    EXPECT_FALSE(config.ApplyFile(text, "f").ok()) << text;
  }
}

TEST(Config, AcceptsKeysOfLaterBuildsAtTheirDefaultOnly) {
  Config config;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_TRUE(config.Set(key.name, key.default_text).ok()) << key.name;
  }
  for (const auto& [key, value] : {std::pair{"disk_tier.path", "/tmp"},
                                   {"host_tier.bytes", "1GiB"},
                                   {"modules.directory", "m"},
                                   {"engine.context_overflow", "truncate_oldest_half"}}) {
    EXPECT_NE(ErrorOf(config.Set(key, value)).find("not available in this build"),
              std::string::npos);
  }
}

TEST(Config, RefusesHalfOfAPair) {
  for (const char* key : {"tls.cert_file", "tls.key_file"}) {
    Config config;
    ASSERT_TRUE(config.Set("model.path", "m").ok());
    ASSERT_TRUE(config.Set(key, "file").ok());
    EXPECT_NE(ErrorOf(config.Validate()).find("go together"), std::string::npos);
  }
  Config config;
  ASSERT_TRUE(config.Set("model.path", "m").ok());
  ASSERT_TRUE(config.Set("kv_cache.isolation", "api_key").ok());
  EXPECT_NE(ErrorOf(config.Validate()).find("auth.keys_file"), std::string::npos);
  ASSERT_TRUE(config.Set("auth.keys_file", "keys").ok());
  EXPECT_TRUE(config.Validate().ok());
  ASSERT_TRUE(config.Set("log.prompts", "on").ok());
  EXPECT_EQ(ErrorOf(config.Validate()),
            "config key \"log.prompts\" is on, which needs \"log.requests_file\"");
  ASSERT_TRUE(config.Set("log.requests_file", "requests.jsonl").ok());
  EXPECT_TRUE(config.Validate().ok());
}

// Nobody else's machine comes in before the operator says so.
TEST(Config, ListensOnLoopbackAloneUnlessToldOtherwise) {
  for (const char* key : {"server.http_listen", "server.grpc_listen"}) {
    EXPECT_TRUE(Config().text(key).starts_with("127.0.0.1:")) << key << ": " << Config().text(key);
  }
}

// Either way in may be off, not both.
TEST(Config, NeedsOneAddressToListenOn) {
  for (const char* off : {"server.http_listen", "server.grpc_listen"}) {
    Config config;
    ASSERT_TRUE(config.Set("model.path", "m").ok());
    ASSERT_TRUE(config.Set(off, "").ok());
    EXPECT_TRUE(config.Validate().ok()) << off << ": " << config.Validate();
  }
  Config config;
  ASSERT_TRUE(config.Set("model.path", "m").ok());
  for (const char* key : {"server.http_listen", "server.grpc_listen"}) {
    ASSERT_TRUE(config.Set(key, "").ok());
  }
  const std::string error = ErrorOf(config.Validate());
  for (const char* part : {"server.http_listen", "server.grpc_listen", "both empty"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(Config, RefusesAStepWithoutATokenForEachSequence) {
  Config config;
  ASSERT_TRUE(config.Set("model.path", "m").ok());
  ASSERT_TRUE(config.Set("engine.max_sequences", "512").ok());
  EXPECT_TRUE(config.Validate().ok());
  ASSERT_TRUE(config.Set("engine.max_sequences", "513").ok());
  const std::string error = ErrorOf(config.Validate());
  for (const char* part : {"engine.step_token_budget", "512", "engine.max_sequences", "513"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(Config, RefusesANameThatNoClientCanRead) {
  const std::pair<const char*, const char*> kBad[] = {
      {"\xff\"", "\"\\xff\\\"\" has what is not UTF-8 at byte 0"},
      {"ab\xc3(", "what is not UTF-8 at byte 2"},
      {"a\nb", "a control character at byte 1"},
  };
  for (const auto& [name, mention] : kBad) {
    Config config;
    ASSERT_TRUE(config.Set("model.path", "m").ok());
    ASSERT_TRUE(config.Set("model.served_name", name).ok());
    const std::string error = ErrorOf(config.Validate());
    EXPECT_NE(error.find("config key \"model.served_name\": "), std::string::npos) << error;
    EXPECT_NE(error.find(mention), std::string::npos) << error;
  }
  Config config;
  ASSERT_TRUE(config.Set("model.path", "m\xff").ok());
  ASSERT_TRUE(config.Set("model.served_name", "Modell \xc3\xa4 \"7B\"").ok());
  EXPECT_TRUE(config.Validate().ok());
}

TEST(Config, ReadsSizes) {
  const std::pair<const char*, int64_t> kSizes[] = {{"0", 0},
                                                    {"4096", 4096},
                                                    {"7B", 7},
                                                    {"3KiB", 3 << 10},
                                                    {"512MiB", 512 << 20},
                                                    {"2GiB", int64_t{2} << 30},
                                                    {"1TiB", int64_t{1} << 40}};
  for (const auto& [text, bytes] : kSizes) {
    Config config;
    ASSERT_TRUE(config.Set("kv_cache.memory_bytes", text).ok()) << text;
    EXPECT_EQ(config.integer("kv_cache.memory_bytes"), bytes) << text;
  }
}

TEST(Config, AFailedFileChangesNothing) {
  Config config;
  EXPECT_FALSE(config.ApplyFile(R"({"limits":{"n":5,"drain_s":-1}})", "f").ok());
  EXPECT_EQ(config.integer("limits.n"), 128);
}

TEST(ListenAddress, SplitsHostAndPort) {
  EXPECT_EQ(ParseListenAddress("127.0.0.1:80")->host, "127.0.0.1");
  EXPECT_EQ(ParseListenAddress("localhost:0")->port, 0);
  EXPECT_EQ(ParseListenAddress("[::1]:8000")->host, "::1");
  for (const char* text : {"[::1]:8000", "127.0.0.1:80"}) {
    EXPECT_EQ(AddressText(*ParseListenAddress(text)), text);
  }
  for (const char* bad :
       {"", "8000", ":8000", "host", "host:", "host:x", "host:70000", "::1:80", "host:-1"}) {
    EXPECT_FALSE(ParseListenAddress(bad).ok()) << bad;
  }
}

absl::StatusOr<CommandLine> Parse(std::vector<const char*> arguments) {
  return ParseCommandLine(arguments);
}

TEST(CommandLine, FlagsWinOverTheFileInOrder) {
  const std::string path =
      Fixture("c.json", R"({"model":{"path":"/file"},"limits":{"n":7},"server":{"io_threads":3}})");
  const auto line = Parse({"serve", "--set", "limits.n=8", "--config", path.c_str(),
                           "--model=/flag", "--listen", "0.0.0.0:1", "--set=limits.n=9"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->config.text("model.path"), "/flag");
  EXPECT_EQ(line->config.integer("limits.n"), 9);
  EXPECT_EQ(line->config.integer("server.io_threads"), 3);
  EXPECT_EQ(line->config.text("server.http_listen"), "0.0.0.0:1");
}

TEST(CommandLine, KnowsItsActions) {
  EXPECT_EQ(Parse({"--help"})->action, CommandLine::Action::kHelp);
  EXPECT_EQ(Parse({"--version"})->action, CommandLine::Action::kVersion);
  EXPECT_EQ(Parse({"--model", "m", "--check-config"})->action, CommandLine::Action::kCheckConfig);
  EXPECT_EQ(Parse({"--model", "m"})->action, CommandLine::Action::kServe);
}

TEST(CommandLine, SaysWhatIsWrong) {
  const std::pair<std::vector<const char*>, const char*> kBad[] = {
      {{}, "--model PATH"},
      {{"cache"}, "unknown argument \"cache\""},
      {{"--modle", "x"}, "unknown argument \"--modle\""},
      {{"--model"}, "needs a value"},
      {{"--model", "m", "--config", ""}, "--config names no file"},
      {{"--config=", "--model", "m", "--check-config"}, "--config names no file"},
      {{"--model", "m", "--set", "limits.n"}, "KEY=VALUE"},
      {{"--model", "m", "--set", "limit.n=1"}, "did you mean \"limits.n\""},
      {{"--model", "m", "--listen", "nowhere"}, "server.http_listen"},
      {{"--model", "m", "--config", "/does/not/exist"}, "/does/not/exist"},
      {{"--model", "m", "--grpc-listen", "nowhere"}, "server.grpc_listen"},
  };
  for (const auto& [arguments, mention] : kBad) {
    const std::string error = ErrorOf(Parse(arguments).status());
    EXPECT_NE(error.find(mention), std::string::npos) << error;
  }
}

TEST(Help, NamesEveryKey) {
  const std::string help = HelpText();
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_NE(help.find(key.name), std::string::npos) << key.name;
  }
}

TEST(Config, TheTwoFrontEndsHaveAddressesOfTheirOwn) {
  const auto load = [](const char* http, const char* grpc) {
    return Parse({"--model", "m", "--listen", http, "--grpc-listen", grpc}).status();
  };
  for (const char* address : {"127.0.0.1:8000", "[::1]:8000"}) {
    const std::string error(load(address, address).message());
    for (const char* part : {"server.http_listen", "server.grpc_listen", address}) {
      EXPECT_NE(error.find(part), std::string::npos) << error;
    }
  }
  EXPECT_FALSE(load("127.0.0.1:8000", "127.0.0.1:08000").ok()) << "another spelling";
  EXPECT_TRUE(load("127.0.0.1:8000", "127.0.0.2:8000").ok());
  EXPECT_TRUE(load("127.0.0.1:8000", "127.0.0.1:8001").ok());
  EXPECT_TRUE(load("127.0.0.1:0", "127.0.0.1:0").ok()) << "any free port each";
}

}  // namespace
}  // namespace refrain::server
