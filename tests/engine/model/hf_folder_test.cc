#include "engine/model/hf_folder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/text/create_tokenizer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using refrain::testing::TemporaryDirectory;
using refrain::testing::TinyModelOptions;
using refrain::testing::TinyWeight;
using refrain::testing::WriteTinyFolder;

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void ExpectError(const absl::Status& status, absl::StatusCode code, std::string_view text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status;
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
  Write(path + "/model.safetensors.index.json",
        R"({"weight_map":{"a":"model.safetensors","b":"again.safetensors"}})");
  ExpectError(WeightSource::Open(path).status(), absl::StatusCode::kInvalidArgument, "twice");
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

}  // namespace
}  // namespace refrain::engine
