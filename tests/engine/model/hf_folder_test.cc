#include "engine/model/hf_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "engine/model/tensor_table.h"
#include "engine/text/create_tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using refrain::testing::ExpectError;
using refrain::testing::SafetensorsWriter;
using refrain::testing::TemporaryDirectory;
using refrain::testing::TinyModelOptions;
using refrain::testing::TinyWeight;
using refrain::testing::WriteTinyFolder;

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// The same weights from one file and from three, f32 bit for bit in half-split order.
TEST(HfFolderTest, ReadsSingleAndShardedWeights) {
  for (const int shards : {1, 3}) {
    TemporaryDirectory directory;
    TinyModelOptions options;
    options.num_shards = shards;
    options.config.tied_embeddings = shards == 1;
    ASSERT_TRUE(WriteTinyFolder(options, directory.path()).ok());
    const auto source = WeightSource::Open(directory.path());
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->config().rope.source_pairs, RopePairs::kHalfSplit);
    EXPECT_EQ((*source)->Has(TensorRole::kOutput), shards != 1);
    for (int role = 0; role < kNumTensorRoles; ++role) {
      const auto view = (*source)->Get(static_cast<TensorRole>(role), 0);
      if (!view.ok()) continue;
      const std::vector<float> expected = TinyWeight(options, static_cast<TensorRole>(role), 0);
      ASSERT_EQ(view->bytes, expected.size() * sizeof(float));
      EXPECT_EQ(std::memcmp(view->data, expected.data(), view->bytes), 0) << role;
    }
    EXPECT_EQ((*source)->Get(TensorRole::kAttnQ, 2).status().code(), absl::StatusCode::kOutOfRange);
  }
}

TEST(HfFolderTest, ReadsMistral) {
  TemporaryDirectory directory;
  TinyModelOptions options;
  options.config.architecture = "mistral";
  options.config.sliding_window_tokens = 64;
  options.matrix_dtype = kernels::DType::kBF16;
  ASSERT_TRUE(WriteTinyFolder(options, directory.path()).ok());
  const auto source = WeightSource::Open(directory.path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->config().architecture, "mistral");
  EXPECT_EQ((*source)->config().sliding_window_tokens, 64);
  EXPECT_EQ((*source)->Get(TensorRole::kFfnUp, 1)->dtype, kernels::DType::kBF16);
}

TEST(HfFolderTest, NamesWhatIsMissing) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  ExpectError(WeightSource::Open(path).status(), absl::StatusCode::kNotFound, "config.json");
  ExpectError(WeightSource::Open(path + "/none").status(), absl::StatusCode::kNotFound, "none");
  ASSERT_TRUE(WriteTinyFolder({}, path).ok());
  std::filesystem::remove(path + "/tokenizer.json");
  const auto source = WeightSource::Open(path);
  ASSERT_TRUE(source.ok()) << source.status();
  ExpectError((*source)->ReadTokenizer().status(), absl::StatusCode::kNotFound, "tokenizer.json");
  std::filesystem::remove(path + "/model.safetensors");
  ExpectError(WeightSource::Open(path).status(), absl::StatusCode::kNotFound, "model.safetensors");
}

// An index may name files of its own folder only.
TEST(HfFolderTest, RefusesShardsOutsideOfTheFolder) {
  for (const char* name :
       {"../model.safetensors", "/etc/model.safetensors", "a/b.safetensors", "..", "",
        ".safetensors", "model.bin", "a\\\\b.safetensors", "a\\u0000.safetensors"}) {
    const std::string index =
        std::string(R"({"weight_map":{"model.norm.weight":")") + name + "\"}}";
    ExpectError(ParseShardIndex(index).status(), absl::StatusCode::kInvalidArgument,
                "model.norm.weight");
  }
  for (const char* index : {"", "[]", "{}", R"({"weight_map":{}})", R"({"weight_map":[]})",
                            R"({"weight_map":{"a":1}})"}) {
    EXPECT_EQ(ParseShardIndex(index).status().code(), absl::StatusCode::kInvalidArgument) << index;
  }
  const auto names = ParseShardIndex(R"({"weight_map":{"a":"x.safetensors","b":"x.safetensors"}})");
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_EQ(*names, std::set<std::string>{"x.safetensors"});
}

TEST(HfFolderTest, RefusesATensorInTwoShards) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  ASSERT_TRUE(WriteTinyFolder({}, path).ok());
  std::filesystem::copy_file(path + "/model.safetensors", path + "/again.safetensors");
  std::filesystem::rename(path + "/model.safetensors", path + "/first.safetensors");
  Write(path + "/model.safetensors.index.json",
        R"({"weight_map":{"a":"first.safetensors","b":"again.safetensors"}})");
  ExpectError(WeightSource::Open(path).status(), absl::StatusCode::kInvalidArgument, "twice");
}

// Writes a folder whose weights `change` has a say in: name -> shape and f32 bytes.
struct StoredTensor {
  std::vector<int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, StoredTensor>;

void WriteFolder(const std::string& path, bool tied, const std::function<void(Tensors&)>& change) {
  TinyModelOptions options;
  options.config.tied_embeddings = tied;
  options.config.hidden_size = 32;
  options.config.head_dim = options.config.rope.dim = 8;
  options.config.ffn_size = 48;
  ASSERT_TRUE(WriteTinyFolder(options, path).ok());
  Tensors tensors;
  {
    const auto source = WeightSource::Open(path);
    ASSERT_TRUE(source.ok()) << source.status();
    for (int role = 0; role < kNumTensorRoles; ++role) {
      const auto known = static_cast<TensorRole>(role);
      for (int layer = 0; layer < (IsPerLayer(known) ? options.config.num_layers : 1); ++layer) {
        const auto view = (*source)->Get(known, layer);
        if (!view.ok()) continue;
        std::vector<int64_t> shape = {view->rows, view->cols};
        if (IsVector(known)) shape.erase(shape.begin());
        tensors[TensorName(TensorNaming::kHuggingFace, known, layer)] = {
            shape, std::string(reinterpret_cast<const char*>(view->data), view->bytes)};
      }
    }
  }
  change(tensors);
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : tensors) {
    writer.AddTensor(name, "F32", tensor.shape, tensor.bytes);
  }
  Write(path + "/model.safetensors", writer.Build());
}

absl::StatusOr<std::unique_ptr<WeightSource>> OpenChanged(
    bool tied, const std::function<void(Tensors&)>& change) {
  TemporaryDirectory directory;
  WriteFolder(directory.path(), tied, change);
  return WeightSource::Open(directory.path());
}

constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

// Writers keep one name of tensors that share memory, some the head's.
TEST(HfFolderTest, ATiedEmbeddingMayStandUnderTheHeadsName) {
  for (const bool both : {false, true}) {
    std::string bytes;
    const auto source = OpenChanged(true, [&](Tensors& tensors) {
      bytes = tensors[kEmbedding].bytes;
      tensors[kHead] = tensors[kEmbedding];
      if (!both) tensors.erase(kEmbedding);
    });
    ASSERT_TRUE(source.ok()) << source.status();
    const auto view = (*source)->Get(TensorRole::kTokenEmbedding, 0);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(std::memcmp(view->data, bytes.data(), view->bytes), 0);
    EXPECT_FALSE((*source)->Has(TensorRole::kOutput, 0));
  }
}

// Readers differ in what they make of it.
TEST(HfFolderTest, RefusesATiedHeadThatIsNotTheEmbedding) {
  ExpectError(OpenChanged(true,
                          [](Tensors& tensors) {
                            tensors[kHead] = tensors[kEmbedding];
                            tensors[kHead].bytes[100] ^= 1;
                          })
                  .status(),
              absl::StatusCode::kInvalidArgument, "tie_word_embeddings is true");
}

TEST(HfFolderTest, RefusesMissingWrongAndUnknownTensors) {
  using enum absl::StatusCode;
  const auto refused = [](absl::StatusCode code, std::string_view text,
                          const std::function<void(Tensors&)>& change) {
    ExpectError(OpenChanged(false, change).status(), code, text);
  };
  refused(kInvalidArgument, kHead, [](Tensors& tensors) { tensors.erase(kHead); });
  refused(kInvalidArgument, kEmbedding, [](Tensors& tensors) { tensors.erase(kEmbedding); });
  refused(kInvalidArgument, "\"model.layers.1.mlp.up_proj.weight\" is missing",
          [](Tensors& tensors) { tensors.erase("model.layers.1.mlp.up_proj.weight"); });
  refused(kInvalidArgument, "has the shape [32, 48], the configuration asks for [48, 32]",
          [](Tensors& tensors) {
            tensors["model.layers.1.mlp.up_proj.weight"].shape = {32, 48};
          });
  refused(kUnimplemented, "biases are not supported", [](Tensors& tensors) {
    tensors["model.layers.0.self_attn.q_proj.bias"] = {{1}, "\1\2\3\4"};
  });
  refused(kUnimplemented, "q_norm", [](Tensors& tensors) {
    tensors["model.layers.0.self_attn.q_norm.weight"] = {{1}, "\1\2\3\4"};
  });
  refused(kInvalidArgument, "is for layer 2, the model has 2 layers", [](Tensors& tensors) {
    tensors["model.layers.2.input_layernorm.weight"] =
        tensors["model.layers.1.input_layernorm.weight"];
  });
}

// Old checkpoints keep the table that RoPE was computed from, in each layer or once.
TEST(HfFolderTest, PassesOverFrequencies) {
  const auto source = OpenChanged(false, [](Tensors& tensors) {
    for (const char* name :
         {"model.layers.0.self_attn.rotary_emb.inv_freq",
          "model.layers.1.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"}) {
      tensors[name] = {{1}, "\1\2\3\4"};
    }
  });
  EXPECT_TRUE(source.ok()) << source.status();
}

TEST(HfFolderTest, ReadsHowTheModelWantsToBeSampled) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  ASSERT_TRUE(WriteTinyFolder({}, path).ok());
  const auto source = WeightSource::Open(path);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto read = [&](const char* json) {
    Write(path + "/generation_config.json", json);
    return (*source)->ReadSamplingDefaults();
  };
  EXPECT_EQ(*(*source)->ReadSamplingDefaults(), SamplingDefaults());
  EXPECT_EQ(*read(R"({"eos_token_id":2,"do_sample":true,"temperature":null})"), SamplingDefaults());
  EXPECT_EQ(*read(R"({"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0,"repetition_penalty":1.05,
                "presence_penalty":1.5,"frequency_penalty":-0.5})"),
            (SamplingDefaults{.temperature = 0.6,
                              .top_p = 0.95,
                              .min_p = 0,
                              .repetition_penalty = 1.05,
                              .presence_penalty = 1.5,
                              .frequency_penalty = -0.5,
                              .top_k = 20}));
  // What they may be is another's question.
  EXPECT_EQ(read(R"({"temperature":-3,"top_k":1e12})")->top_k, 1e12);
  for (const auto& [json, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"temperature":"warm"})",
            "generation_config.json: temperature is \"warm\", must be a number"},
           {R"({"top_k":[1]})", "top_k is [1], must be a number"},
           {"[", "generation_config.json"}}) {
    const absl::Status status = read(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find(message), std::string::npos) << status;
  }
}

// tokenizer.json, tokenizer_config.json and the ids of both other files come together.
TEST(HfFolderTest, GathersTheTokenizer) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  ASSERT_TRUE(WriteTinyFolder({}, path).ok());
  Write(path + "/generation_config.json", R"({"eos_token_id":[2,0]})");
  const auto source = WeightSource::Open(path);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto tokenizer = (*source)->ReadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE(tokenizer->sentencepiece_model.empty());
  EXPECT_EQ(tokenizer->spec.tokens.size(), 384u);
  EXPECT_EQ(tokenizer->spec.eos, kvcache::TokenId{2});
  EXPECT_NE(tokenizer->spec.chat_template.find("<|im_start|>"), std::string::npos);
  const auto created = CreateTokenizer(tokenizer->spec);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_TRUE((*created)->IsEndOfGeneration(kvcache::TokenId{2}));
  EXPECT_TRUE((*created)->IsEndOfGeneration(kvcache::TokenId{0}));
  EXPECT_FALSE((*created)->IsEndOfGeneration(kvcache::TokenId{1}));
}

// Of no well-known name, and without a role: a message that spells it must not end its turn.
TEST(HfFolderTest, AddedTokensThatEndATurnByTheirIdAreControlTokens) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  ASSERT_TRUE(WriteTinyFolder({}, path).ok());
  std::ifstream file(path + "/tokenizer.json");
  std::string json{std::istreambuf_iterator<char>(file), {}};
  const std::string place = "\"added_tokens\":[";
  ASSERT_NE(json.find(place), std::string::npos);
  json.insert(json.find(place) + place.size(), R"({"id":384,"content":"[EOT]","special":false},)"
                                               R"({"id":385,"content":"[TOOL]","special":false},)");
  Write(path + "/tokenizer.json", json);
  Write(path + "/generation_config.json", R"({"eos_token_id":[2,384]})");
  const auto source = WeightSource::Open(path);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto tokenizer = (*source)->ReadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->spec.token_types[384], TokenType::kControl);
  EXPECT_EQ(tokenizer->spec.token_types[385], TokenType::kUserDefined);
  const auto created = CreateTokenizer(tokenizer->spec);
  ASSERT_TRUE(created.ok()) << created.status();
  const std::string text = "[EOT]a[EOT][TOOL]";
  const TextSpan content{5, text.size()};
  const EncodeOptions chat{.parse_special = true, .plain_spans = {&content, 1}};
  const auto found = (*created)->FindControlTokens(text, chat);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].span.begin_byte, 0u);
  const auto ids = (*created)->Encode(text, chat);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(std::count(ids->begin(), ids->end(), kvcache::TokenId{384}), 1);
  EXPECT_EQ(std::count(ids->begin(), ids->end(), kvcache::TokenId{385}), 1);
}

// A tokenizer.model has no template; the files beside it do.
TEST(HfFolderTest, ReadsASentencePieceModelWithItsSidecars) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  ASSERT_TRUE(WriteTinyFolder({}, path).ok());
  std::filesystem::remove(path + "/tokenizer.json");
  Write(path + "/tokenizer.model", "not read here");
  Write(path + "/tokenizer_config.json",
        R"({"chat_template":[{"name":"tool_use","template":"no"},)"
        R"({"name":"default","template":"{{ messages }}"}],"add_bos_token":true})");
  Write(path + "/special_tokens_map.json", R"({"additional_special_tokens":["<|im_start|>"]})");
  Write(path + "/added_tokens.json", R"({"<|im_start|>":300})");
  Write(path + "/generation_config.json", R"({"eos_token_id":[2,7]})");
  const auto source = WeightSource::Open(path);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto tokenizer = (*source)->ReadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->sentencepiece_model, "not read here");
  ASSERT_EQ(tokenizer->spec.tokens.size(), 301u);
  EXPECT_EQ(tokenizer->spec.tokens[300], "<|im_start|>");
  EXPECT_EQ(tokenizer->spec.token_types[300], TokenType::kControl);
  EXPECT_EQ(tokenizer->spec.chat_template, "{{ messages }}");
  EXPECT_EQ(tokenizer->spec.add_bos, true);
  EXPECT_EQ(tokenizer->spec.eos, kvcache::TokenId{2});
  EXPECT_EQ(tokenizer->spec.end_of_generation, std::vector{kvcache::TokenId{7}});
}

// Each names the file, the value and what is valid, whichever of the two tokenizers it stands
// beside.
struct BadFile {
  const char* name;
  const char* text;
  const char* message;
};

// Of a tiny model whose tokenizer is a tokenizer.json, or (if not `json`) a tokenizer.model.
void ExpectTokenizerRefused(const BadFile& bad, bool json) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  ASSERT_TRUE(WriteTinyFolder({}, path).ok());
  if (!json) std::filesystem::remove(path + "/tokenizer.json");
  Write(path + "/tokenizer.model", "not read here");
  Write(path + "/" + bad.name, bad.text);
  const auto source = WeightSource::Open(path);
  ASSERT_TRUE(source.ok()) << source.status();
  ExpectError((*source)->ReadTokenizer().status(), absl::StatusCode::kInvalidArgument, bad.message);
}

TEST(HfFolderTest, SaysWhichFileOfTheTokenizerIsWrong) {
  const BadFile kBad[] = {
      {"tokenizer.model", "", "tokenizer.model\" is empty"},
      {"tokenizer_config.json", "", "tokenizer_config.json\" is empty"},
      {"generation_config.json", "[2]", "generation_config.json is not a JSON object"},
      {"generation_config.json", "{",
       "generation_config.json is not valid JSON: ends too early, after 1 bytes"},
      {"generation_config.json", R"({"eos_token_id":1e999})",
       "generation_config.json is not valid JSON: the number that ends at byte 21 of 22 is too"},
      {"tokenizer_config.json", R"({"model_max_length":1e999})",
       "is not valid JSON: the number that ends at byte 25 of 26 is too large"},
      {"generation_config.json", R"({"bos_token_id":1 2})",
       "generation_config.json is not valid JSON: wrong at byte 19 of 20"},
      {"generation_config.json", R"({"eos_token_id":[2,1000000000]})",
       "generation_config.json: eos_token_id holds 1000000000, must be a token id from 0 to "},
      {"generation_config.json", R"({"eos_token_id":"two"})",
       "generation_config.json: eos_token_id holds \"two\", must be a token id from 0 to "},
      {"generation_config.json", R"({"bos_token_id":-1})",
       "generation_config.json: bos_token_id holds -1, must be a token id from 0 to "},
      {"tokenizer_config.json", R"({"chat_template":3})",
       "tokenizer_config.json: chat_template is 3, must be a string or a list of named templates"},
      {"tokenizer_config.json", R"({"chat_template":{"default":"x"}})",
       "chat_template is an object, must be a string or a list of named templates"},
      {"tokenizer_config.json", R"({"chat_template":["x"]})",
       "chat_template holds \"x\", must be a string or a list of named templates"},
      {"tokenizer_config.json", R"({"chat_template":[{"name":"default","template":4}]})",
       "chat_template holds an object, must be a string or a list of named templates"},
  };
  for (const BadFile& bad : kBad) ExpectTokenizerRefused(bad, /*json=*/false);
  const BadFile kBadBesideJson[] = {
      {"tokenizer.json", "", "tokenizer.json\" is empty"},
      {"generation_config.json", R"({"eos_token_id":[2,1000000000]})",
       "generation_config.json: eos_token_id holds 1000000000, must be a token id from 0 to 383"},
      {"generation_config.json", R"({"eos_token_id":{"a":1}})",
       "generation_config.json: eos_token_id holds an object, must be a token id from 0 to 383"},
      {"tokenizer_config.json", R"({"chat_template":3})",
       "tokenizer_config.json: chat_template is 3, must be a string or a list of named templates"},
  };
  for (const BadFile& bad : kBadBesideJson) ExpectTokenizerRefused(bad, /*json=*/true);
}

// A file of its own stands above the config's.
TEST(HfFolderTest, PassesOverATemplateThatAFileStandsAbove) {
  TemporaryDirectory directory;
  ASSERT_TRUE(WriteTinyFolder({}, directory.path()).ok());
  Write(directory.path() + "/tokenizer_config.json", R"({"chat_template":3})");
  Write(directory.path() + "/chat_template.jinja", "{{ messages }}");
  const auto tokenizer = (*WeightSource::Open(directory.path()))->ReadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->spec.chat_template, "{{ messages }}");
}

// Files of their own stand above the config's; where none of them is the default one, its is taken.
TEST(HfFolderTest, FindsTheTemplatesOfFurtherNames) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  using Named = std::map<std::string, std::string>;
  ASSERT_TRUE(WriteTinyFolder({}, path).ok());
  Write(path + "/tokenizer_config.json",
        R"({"chat_template":[{"name":"default","template":"1"},{"name":"tool_use","template":"T"},)"
        R"({"name":"default","template":"2"}]})");
  auto tokenizer = (*WeightSource::Open(path))->ReadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->spec.chat_template, "2");
  EXPECT_EQ(tokenizer->spec.named_chat_templates, (Named{{"tool_use", "T"}}));
  std::filesystem::create_directory(path + "/additional_chat_templates");
  Write(path + "/additional_chat_templates/tool_use.jinja", "FT");
  Write(path + "/additional_chat_templates/README.md", "no template");
  tokenizer = (*WeightSource::Open(path))->ReadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->spec.chat_template, "2");
  EXPECT_EQ(tokenizer->spec.named_chat_templates, (Named{{"tool_use", "FT"}}));
  Write(path + "/chat_template.jinja", "F");
  tokenizer = (*WeightSource::Open(path))->ReadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->spec.chat_template, "F");
  EXPECT_EQ(tokenizer->spec.named_chat_templates, (Named{{"tool_use", "FT"}}));
}

// As with transformers: a folder that was saved again in one file may still have its old index.
TEST(HfFolderTest, OneFileStandsAboveAnIndex) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  ASSERT_TRUE(WriteTinyFolder({}, path).ok());
  Write(path + "/model.safetensors.index.json",
        R"({"weight_map":{"model.norm.weight":"model-00001-of-00001.safetensors"}})");
  const auto source = WeightSource::Open(path);
  EXPECT_TRUE(source.ok()) << source.status();
}

TEST(HfFolderTest, RefusesFilesBesideTheTokenizerThatAreTooLarge) {
  TemporaryDirectory directory;
  ASSERT_TRUE(WriteTinyFolder({}, directory.path()).ok());
  for (const auto& [bytes, accepted] : {std::pair(16 << 20, true), {(16 << 20) + 1, false}}) {
    const std::string path = directory.path() + "/special_tokens_map.json";
    std::ofstream(path) << "{}" << std::string(bytes - 2, ' ');
    const auto source = WeightSource::Open(directory.path());
    ASSERT_TRUE(source.ok()) << source.status();
    const absl::Status status = (*source)->ReadTokenizer().status();
    EXPECT_EQ(status.ok(), accepted) << status;
    if (accepted) continue;
    EXPECT_NE(status.message().find("has 16777217 bytes, at most 16777216 are read"),
              std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace refrain::engine
