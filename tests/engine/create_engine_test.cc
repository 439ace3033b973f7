// What loading a model tells about its files.

#include "engine/create_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "engine/backend_factory.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using refrain::testing::TemporaryDirectory;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<EngineParts> Load(const std::string& path, EngineOptions options = {}) {
  options.model.path = path;
  options.backend.kind = "cpu";
  options.kv_cache.memory_bytes = 4 << 20;
  return MakeEngineParts(options);
}

// A folder whose tokenizer.json has `text` behind the first `place`.
void WriteFolderWith(const std::string& directory, const std::string& place,
                     const std::string& text) {
  ASSERT_TRUE(refrain::testing::WriteTinyFolder({}, directory).ok());
  const std::string path = directory + "/tokenizer.json";
  std::ifstream file(path);
  std::string json{std::istreambuf_iterator<char>(file), {}};
  ASSERT_NE(json.find(place), std::string::npos);
  std::ofstream(path) << json.insert(json.find(place) + place.size(), text);
}

constexpr char kPad[] = R"({"id":384,"content":"<pad>","special":true},)";

// The model has 384 tokens, ids from 0.
TEST(CreateEngineTest, LeavesOutAddedTokensBeyondTheEmbedding) {
  TemporaryDirectory directory;
  WriteFolderWith(directory.path(), "\"added_tokens\":[", kPad);
  const auto parts = Load(directory.path());
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(parts->model.warning,
              HasSubstr("ids from 384 to 384 (the last is '<pad>') are not used"));
  EXPECT_EQ(parts->tokenizer->vocab_size(), 384u);
  const auto ids = parts->tokenizer->Encode("<pad>", {.parse_special = true});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_GT(ids->size(), 1u);
}

TEST(CreateEngineTest, TheCacheEvictsAndTheModelAttendsAsTheOptionsSay) {
  TemporaryDirectory directory;
  ASSERT_TRUE(refrain::testing::WriteTinyFolder({}, directory.path()).ok());
  EngineOptions options;
  for (const char* eviction : {"lru", "s3fifo", "reuse_rate"}) {
    options.kv_cache.eviction = eviction;
    const auto parts = Load(directory.path(), options);
    ASSERT_TRUE(parts.ok()) << parts.status();
    EXPECT_EQ(parts->cache->options().eviction, eviction);
    EXPECT_THAT(parts->model.description, Not(HasSubstr("paged")));
  }
  options.attention_mode = AttentionModeOption::kPaged;
  const auto parts = Load(directory.path(), options);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(parts->model.description, HasSubstr(", paged attention"));
}

// The daemon logs it: nobody could tell otherwise why a server is slow.
TEST(CreateEngineTest, SaysWhyTheCpuIsUsedWhereAGpuWasWanted) {
  TemporaryDirectory directory;
  ASSERT_TRUE(refrain::testing::WriteTinyFolder({}, directory.path()).ok());
  EngineOptions options;
  options.model.path = directory.path();
  options.backend = {.kind = "auto", .threads = 1};
  options.kv_cache.memory_bytes = 4 << 20;
  const CudaMaker no_card = [](const BackendOptions&) {
    return absl::FailedPreconditionError("no CUDA device: the driver is old");
  };
  const auto parts = MakeEngineParts(options, [&](const BackendOptions& wanted) {
    return ChooseBackend(wanted, /*build_has_cuda=*/true, no_card);
  });
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(parts->model.description, HasSubstr("; cpu "));
  EXPECT_THAT(parts->model.warning,
              HasSubstr("CUDA is not used: no CUDA device: the driver is old"));
}

// What metrics make bytes of chunks with: K and V, two layers, two heads of 64.
TEST(CreateEngineTest, TellsWhatAChunkTakes) {
  TemporaryDirectory directory;
  ASSERT_TRUE(refrain::testing::WriteTinyFolder({}, directory.path()).ok());
  EngineOptions options;
  options.kv_cache.dtype = "f16";
  options.kv_cache.chunk_tokens = 32;
  const auto parts = Load(directory.path(), options);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->kv_chunk_bytes, 2 * 2 * 2 * 64 * 32 * 2);
}

// JSON and metrics could not hold the byte that is not UTF-8, nor a terminal the end of the line.
TEST(CreateEngineTest, MendsTheNameOfAFolderThatNoClientCouldRead) {
  TemporaryDirectory directory;
  const std::string folder = directory.path() + "/hx\xff\n";
  std::filesystem::create_directory(folder);
  ASSERT_TRUE(refrain::testing::WriteTinyFolder({}, folder).ok());
  const auto parts = Load(folder);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->model.served_name, "hx\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(CreateEngineTest, TellsWhatTheFilesSayOfTheTokenizer) {
  TemporaryDirectory directory;
  WriteFolderWith(directory.path(), "\"vocab\":{", "");
  std::ofstream(directory.path() + "/tokenizer_config.json")
      << R"({"tokenizer_class":"LlamaTokenizer","pad_token":{"content":"<|im_start|>"},)"
      << R"("bos_token":"<|endoftext|>","eos_token":"<|im_end|>","add_bos_token":true,"chat_template":"{{ bos_token }}{{ messages }}"})";
  const auto parts = Load(directory.path());
  ASSERT_TRUE(parts.ok()) << parts.status();
  const TokenizerInfo& info = parts->model.tokenizer;
  EXPECT_EQ(info.tokenizer_class, "LlamaTokenizer");
  EXPECT_EQ(info.tokens, (std::map<std::string, std::string>{{"bos_token", "<|endoftext|>"},
                                                             {"eos_token", "<|im_end|>"},
                                                             {"pad_token", "<|im_start|>"}}));
  EXPECT_TRUE(info.adds_bos);
  EXPECT_EQ(info.chat_template, "{{ bos_token }}{{ messages }}");
}

// As in Qwen2.5's folders: config.json has an id for a bos that the tokenizer's files do not name.
TEST(CreateEngineTest, TemplatesSeeTheTokensThatTheTokenizersFilesName) {
  TemporaryDirectory directory;
  WriteFolderWith(directory.path(), "\"vocab\":{", "");
  std::ofstream(directory.path() + "/generation_config.json")
      << R"({"bos_token_id":0,"eos_token_id":2})";
  std::ofstream(directory.path() + "/tokenizer_config.json")
      << R"({"bos_token":null,"eos_token":"<|im_end|>",)"
      << R"("chat_template":"{{ bos_token }}[{{ eos_token }}]{{ messages }}"})";
  const auto parts = Load(directory.path());
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_NE(parts->chat_template, nullptr);
  const auto rendered = parts->chat_template->Render({});
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "[<|im_end|>]");
  EXPECT_EQ(parts->model.tokenizer.tokens,
            (std::map<std::string, std::string>{{"eos_token", "<|im_end|>"}}));
  EXPECT_EQ(parts->tokenizer->bos(), TokenId{0});
}

// As transformers 4.57 and 5 show them for such folders. Expected are `bos[eos]`.
TEST(CreateEngineTest, TemplatesSeeTheTokensThatAClassHasByItself) {
  const auto shown = [](const std::string& config, const std::string& map = "{}") {
    TemporaryDirectory directory;
    WriteFolderWith(directory.path(), "\"vocab\":{", "");
    std::ofstream(directory.path() + "/generation_config.json")
        << R"({"bos_token_id":0,"eos_token_id":2})";
    std::ofstream(directory.path() + "/special_tokens_map.json") << map;
    std::ofstream(directory.path() + "/tokenizer_config.json")
        << R"({"chat_template":"{{ bos_token }}[{{ eos_token }}]{{ messages }}")" << config << "}";
    const auto parts = Load(directory.path());
    EXPECT_TRUE(parts.ok()) << parts.status();
    const auto rendered = parts->chat_template->Render({});
    EXPECT_TRUE(rendered.ok()) << rendered.status();
    return rendered->text;
  };
  for (const char* name :
       {"LlamaTokenizer", "LlamaTokenizerFast", "GPT2Tokenizer", "GPT2TokenizerFast"}) {
    const std::string of_class = std::string(R"(,"tokenizer_class":")") + name + "\"";
    EXPECT_EQ(shown(of_class), "<|endoftext|>[<|im_end|>]") << name;
    EXPECT_EQ(shown(of_class + R"(,"bos_token":null)"), "[<|im_end|>]") << name;
    EXPECT_EQ(shown(of_class, R"({"eos_token":null})"), "<|endoftext|>[]") << name;
    // With added_tokens_decoder the map does not count.
    EXPECT_EQ(shown(of_class + R"(,"added_tokens_decoder":{})", R"({"eos_token":null})"),
              "<|endoftext|>[<|im_end|>]")
        << name;
  }
  for (const char* name : {"Qwen2Tokenizer", "Qwen2TokenizerFast"}) {
    EXPECT_EQ(shown(std::string(R"(,"tokenizer_class":")") + name + "\""), "[<|im_end|>]") << name;
  }
  for (const char* name : {"PreTrainedTokenizerFast", "TokenizersBackend"}) {
    EXPECT_EQ(shown(std::string(R"(,"tokenizer_class":")") + name + "\""), "[]") << name;
  }
  EXPECT_EQ(shown(""), "[]");
  EXPECT_EQ(shown("", R"({"eos_token":"<|im_end|>"})"), "[<|im_end|>]");
}

TEST(CreateEngineTest, RequestsThatLeaveSamplingOutGetTheModels) {
  TemporaryDirectory directory;
  ASSERT_TRUE(refrain::testing::WriteTinyFolder({}, directory.path()).ok());
  std::ofstream(directory.path() + "/generation_config.json")
      << R"({"temperature":0.5,"top_k":-1,"top_p":0.75,"repetition_penalty":1.5,)"
      << R"("presence_penalty":0.25,"frequency_penalty":-1})";
  const auto parts = Load(directory.path());
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->model.sampling.temperature, 0.5);
  EXPECT_EQ(parts->model.sampling.top_p, 0.75);
  EXPECT_EQ(parts->model.sampling.top_k, 0);
  EXPECT_EQ(parts->model.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(parts->model.sampling.presence_penalty, 0.25);
  EXPECT_EQ(parts->model.sampling.frequency_penalty, -1);
  EXPECT_EQ(parts->model.sampling.min_p, 0);

  EngineOptions openai;
  openai.model.own_sampling_defaults = false;
  const auto without = Load(directory.path(), openai);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->model.sampling.temperature, 1);
  EXPECT_EQ(without->model.sampling.presence_penalty, 0);
}

// No reason not to serve.
TEST(CreateEngineTest, WhatNoRequestMayAskForIsLeftOutWithAWarning) {
  TemporaryDirectory directory;
  ASSERT_TRUE(refrain::testing::WriteTinyFolder({}, directory.path()).ok());
  const auto load = [&](const char* json) {
    std::ofstream(directory.path() + "/generation_config.json") << json;
    auto parts = Load(directory.path());
    EXPECT_TRUE(parts.ok()) << parts.status();
    return std::pair(parts->model.sampling, parts->model.warning);
  };
  const auto [some, told] = load(R"({"temperature":-1,"top_p":0,"min_p":0.5,"top_k":1e12})");
  EXPECT_EQ(some.temperature, 1);
  EXPECT_EQ(some.top_p, 1);
  EXPECT_EQ(some.min_p, 0.5);
  EXPECT_EQ(some.top_k, 0);
  EXPECT_THAT(told, HasSubstr("temperature is -1, must be at least 0"));
  EXPECT_THAT(told, HasSubstr("top_p is 0, must be over 0 and at most 1"));
  const auto [none, why] = load(R"({"temperature":"warm","top_k":5})");
  EXPECT_EQ(none.top_k, 0);
  EXPECT_THAT(why, HasSubstr("temperature is \"warm\", must be a number"));
  const auto [large, silent] = load(R"({"temperature":5,"top_k":7})");  // more than the API takes
  EXPECT_EQ(large.temperature, 5);
  EXPECT_EQ(large.top_k, 7);
  EXPECT_EQ(silent, "");
}

TEST(CreateEngineTest, LinearScalingPermitsALongerContext) {
  TemporaryDirectory directory;
  refrain::testing::TinyModelOptions tiny;  // 512 positions
  tiny.config.rope.scaling = RopeScaling::kLinear;
  tiny.config.rope.factor = 2;
  ASSERT_TRUE(refrain::testing::WriteTinyFolder(tiny, directory.path()).ok());
  EXPECT_EQ(Load(directory.path())->model.max_context_tokens, 512);
  EngineOptions options;
  options.max_context_tokens = 1024;
  const auto longer = Load(directory.path(), options);
  ASSERT_TRUE(longer.ok()) << longer.status();
  EXPECT_EQ(longer->model.max_context_tokens, 1024);
  options.max_context_tokens = 1025;
  EXPECT_THAT(std::string(Load(directory.path(), options).status().message()),
              HasSubstr("the model was made for at most 1024"));
}

TEST(CreateEngineTest, RefusesWhatTheModelNeedsBeyondTheEmbedding) {
  TemporaryDirectory text_token;
  WriteFolderWith(text_token.path(), "\"vocab\":{", R"("zz":384,)");
  EXPECT_THAT(std::string(Load(text_token.path()).status().message()),
              HasSubstr("385 tokens, more than the model's vocab_size 384"));
  TemporaryDirectory end;
  WriteFolderWith(end.path(), "\"added_tokens\":[", kPad);
  std::ofstream(end.path() + "/tokenizer_config.json") << R"({"eos_token":"<pad>"})";
  EXPECT_THAT(std::string(Load(end.path()).status().message()),
              HasSubstr("eos token id 384 is outside of the vocabulary of 384 tokens"));
}

TEST(CreateEngineTest, WarnsWhereThePreTokenizerIsAssumed) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/model.gguf";
  std::string bytes = refrain::testing::BuildTinyGguf({});
  std::ofstream(path, std::ios::binary) << bytes;
  const auto named = Load(path);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_THAT(named->model.warning, Not(HasSubstr("pre-tokenizer")));
  const std::string key = "tokenizer.ggml.pre";
  bytes[bytes.find(key) + key.size() - 1] = '_';
  std::ofstream(path, std::ios::binary) << bytes;
  const auto unnamed = Load(path);
  ASSERT_TRUE(unnamed.ok()) << unnamed.status();
  EXPECT_THAT(unnamed->model.warning, HasSubstr("names no pre-tokenizer"));
  EXPECT_THAT(unnamed->model.warning, HasSubstr("gpt2 is assumed"));
}

}  // namespace
}  // namespace refrain::engine
