// Real models through WeightSource: stories260K in both forms, SmolLM2 where tools/fetch_model put
// it.

#include "engine/model/weight_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "engine/model/gguf_part_name.h"
#include "engine/text/create_tokenizer.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/stories260k.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using refrain::testing::BuildTinyGguf;
using refrain::testing::BuildTinyGgufParts;
using refrain::testing::ConvertLlama2cToGguf;
using refrain::testing::GgufWriter;
using refrain::testing::TemporaryDirectory;
using refrain::testing::TinyModelOptions;
using refrain::testing::TinyWeight;
using refrain::testing::WriteTinyFolder;
using refrain::testing::WriteTinyGguf;

constexpr char kStories[] = "tests/data/stories260K";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::unique_ptr<WeightSource> OpenStoriesAsGguf() {
  const auto bytes = ConvertLlama2cToGguf(ReadFile(std::string(kStories) + "/stories260K.bin"),
                                          ReadFile("tests/data/stories260K-tokenizer/tok512.bin"));
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  if (!bytes.ok()) return nullptr;
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/stories.gguf";
  std::ofstream(path, std::ios::binary) << *bytes;
  auto source = WeightSource::Open(path);
  EXPECT_TRUE(source.ok()) << source.status();
  return source.ok() ? *std::move(source) : nullptr;
}

// The folder was converted from the same checkpoint elsewhere: configurations agree, and so do all
// weights, bit for bit, after the permutation of q and k rows.
TEST(WeightSourceTest, StoriesAreTheSameFromGgufAndFolder) {
  const std::unique_ptr<WeightSource> gguf = OpenStoriesAsGguf();
  const auto folder = WeightSource::Open(std::string(kStories) + "/hf");
  ASSERT_NE(gguf, nullptr);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const ModelConfig& a = gguf->config();
  const ModelConfig& b = (*folder)->config();
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.num_heads, b.num_heads);
  EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.ffn_size, b.ffn_size);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.max_context_tokens, b.max_context_tokens);
  EXPECT_EQ(a.tied_embeddings, b.tied_embeddings);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.rope.source_pairs, RopePairs::kAdjacent);
  EXPECT_EQ(b.rope.source_pairs, RopePairs::kHalfSplit);
  int compared = 0;
  for (int number = 0; number < kNumTensorRoles; ++number) {
    const auto role = static_cast<TensorRole>(number);
    for (int layer = 0; layer < (IsPerLayer(role) ? a.num_layers : 1); ++layer) {
      ASSERT_EQ(gguf->Has(role, layer), (*folder)->Has(role, layer));
      if (!gguf->Has(role, layer)) continue;
      const WeightView x = *gguf->Get(role, layer);
      const WeightView y = *(*folder)->Get(role, layer);
      ASSERT_EQ(x.rows, y.rows);
      ASSERT_EQ(x.cols, y.cols);
      const size_t row_bytes = x.bytes / x.rows;
      const bool permuted = role == TensorRole::kAttnQ || role == TensorRole::kAttnK;
      for (int64_t row = 0; row < x.rows; ++row) {
        const int64_t inside = row % a.head_dim;
        const int64_t from =
            permuted ? row - inside + inside / 2 + (inside % 2) * (a.head_dim / 2) : row;
        EXPECT_EQ(std::memcmp(x.data + row * row_bytes, y.data + from * row_bytes, row_bytes), 0)
            << "role " << number << " layer " << layer << " row " << row;
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2 + 9 * 5);
}

// What GGUF and a folder say of Qwen's models, each tensor in its place and as it is stored.
TEST(WeightSourceTest, QwenIsTheSameFromGgufAndFolder) {
  for (const std::string arch : {"qwen2", "qwen3"}) {
    TinyModelOptions options;
    options.config.architecture = arch;
    options.config.qkv_bias = arch == "qwen2";
    options.config.qk_norm = arch == "qwen3";
    TemporaryDirectory directory;
    const auto gguf = WeightSource::Open(*WriteTinyGguf(options, directory.path()));
    const auto folder = WeightSource::Open(*WriteTinyFolder(options, directory.path() + "/hf"));
    ASSERT_TRUE(gguf.ok() && folder.ok()) << gguf.status() << folder.status();
    int compared = 0;
    for (const auto& source : {&**gguf, &**folder}) {
      EXPECT_EQ(source->config().architecture, arch);
      EXPECT_EQ(source->config().qkv_bias, options.config.qkv_bias);
      EXPECT_EQ(source->config().qk_norm, options.config.qk_norm);
      EXPECT_EQ(source->config().rope.source_pairs, RopePairs::kHalfSplit);
      for (int number = kNumGlobalRoles; number < kNumTensorRoles; ++number) {
        const auto role = static_cast<TensorRole>(number);
        EXPECT_EQ(source->Has(role, 1), Belongs(role, options.config)) << number;
        if (!source->Has(role, 1)) continue;
        const WeightView view = *source->Get(role, 1);
        const std::vector<float> expected = TinyWeight(options, role, 1);
        ASSERT_EQ(view.bytes, expected.size() * sizeof(float));
        EXPECT_EQ(std::memcmp(view.data, expected.data(), view.bytes), 0) << number;
        ++compared;
      }
    }
    EXPECT_EQ(compared, 2 * (arch == "qwen2" ? 12 : 11));
  }
}

TEST(WeightSourceTest, SmolLm3IsTheSameFromGgufAndFolder) {
  TinyModelOptions options;
  options.config.architecture = "smollm3";
  options.config.num_layers = 4;
  TemporaryDirectory directory;
  const auto gguf = WeightSource::Open(*WriteTinyGguf(options, directory.path()));
  const auto folder = WeightSource::Open(*WriteTinyFolder(options, directory.path() + "/hf"));
  ASSERT_TRUE(gguf.ok() && folder.ok()) << gguf.status() << folder.status();
  EXPECT_EQ((*gguf)->config().nope_layers, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ((*folder)->config().nope_layers, (*gguf)->config().nope_layers);
  EXPECT_EQ((*gguf)->config().rope.source_pairs, RopePairs::kAdjacent);
  EXPECT_EQ((*folder)->config().rope.source_pairs, RopePairs::kHalfSplit);
}

TEST(WeightSourceTest, QwenWithoutItsVectorsOrWithOthersIsRefused) {
  for (const bool biases : {true, false}) {
    TinyModelOptions options;  // a file that says one thing and has the other
    options.config.architecture = "qwen2";
    options.config.qkv_bias = !biases;
    options.config.qk_norm = !biases;
    TemporaryDirectory directory;
    const auto source = WeightSource::Open(*WriteTinyGguf(options, directory.path()));
    EXPECT_NE(source.status().message().find(biases ? "attn_q.bias\" is missing"
                                                    : "_norm.weight\" is not a part of"),
              std::string::npos)
        << source.status();
  }
}

// Writes `parts` under the names that they must have and returns these.
std::vector<std::string> WriteParts(const std::string& stem,
                                    const std::vector<std::string>& parts) {
  std::vector<std::string> paths;
  for (const std::string& part : parts) {
    paths.push_back(ToString(GgufPartName{stem, static_cast<uint32_t>(paths.size()),
                                          static_cast<uint32_t>(parts.size())}));
    std::ofstream(paths.back(), std::ios::binary) << part;
  }
  return paths;
}

TEST(WeightSourceTest, PartsAreTheModelWhicheverIsGiven) {
  for (const bool tied : {true, false}) {
    TinyModelOptions options;
    options.config.tied_embeddings = tied;
    options.rope_freq_factors.assign(32, 2.0f);
    TemporaryDirectory directory;
    const auto whole = WeightSource::Open(*WriteTinyGguf(options, directory.path()));
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (const int num_parts : {2, 5}) {
      for (const std::string& path :
           WriteParts(directory.path() + "/m", BuildTinyGgufParts(options, num_parts))) {
        const auto source = WeightSource::Open(path);
        ASSERT_TRUE(source.ok()) << source.status();
        EXPECT_EQ((*source)->config().tied_embeddings, tied);
        EXPECT_NE((*source)->description().find(std::to_string(num_parts) + " files, "),
                  std::string::npos);
        int compared = 0;
        for (int number = 0; number < kNumTensorRoles; ++number) {
          const auto role = static_cast<TensorRole>(number);
          ASSERT_EQ((*source)->Has(role, 1), (*whole)->Has(role, 1)) << number;
          if (!(*source)->Has(role, 1)) continue;
          const WeightView view = *(*source)->Get(role, 1);
          const WeightView expected = *(*whole)->Get(role, 1);
          ASSERT_EQ(view.bytes, expected.bytes);
          EXPECT_EQ(std::memcmp(view.data, expected.data, view.bytes), 0) << number;
          ++compared;
        }
        EXPECT_EQ(compared, tied ? 12 : 13);
        EXPECT_EQ((*source)->ReadTokenizer()->spec.tokens, (*whole)->ReadTokenizer()->spec.tokens);
      }
    }
  }
}

TEST(WeightSourceTest, PartsThatAreMissingOrOthersAreRefused) {
  const TinyModelOptions options;
  const std::vector<std::string> parts = BuildTinyGgufParts(options, 3);
  TemporaryDirectory directory;
  const std::string stem = directory.path() + "/m";
  const std::vector<std::string> paths = WriteParts(stem, parts);
  ASSERT_TRUE(WeightSource::Open(paths[0]).ok());
  const auto expect = [](const std::string& path, absl::StatusCode code, const char* text) {
    const absl::Status status = WeightSource::Open(path).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  };
  const auto write = [](const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  };
  // Another name.
  write(stem + ".gguf", parts[1]);
  expect(
      stem + ".gguf", absl::StatusCode::kInvalidArgument,
      "one of 3 parts of a model (split.no 1); for the others to be found its name must end with "
      "-00002-of-00003.gguf");
  write(stem + "-00003-of-00004.gguf", parts[2]);
  expect(stem + "-00003-of-00004.gguf", absl::StatusCode::kInvalidArgument, "-00003-of-00003.gguf");
  // Others in their places.
  write(paths[1], parts[2]);
  expect(paths[0], absl::StatusCode::kInvalidArgument,
         "m-00002-of-00003.gguf\": GGUF: split.no is 2 and split.count 3, must be 1 and 3");
  write(paths[1], BuildTinyGgufParts(options, 4)[1]);
  expect(paths[0], absl::StatusCode::kInvalidArgument, "split.count 4, must be 1 and 3");
  write(paths[1], BuildTinyGguf(options));
  expect(paths[0], absl::StatusCode::kInvalidArgument, "split.no is 0 and split.count 1");
  write(paths[1], parts[1].substr(0, parts[1].size() / 2));
  expect(paths[0], absl::StatusCode::kInvalidArgument, "m-00002-of-00003.gguf\": GGUF: tensor");
  std::filesystem::remove(paths[1]);
  expect(paths[2], absl::StatusCode::kNotFound,
         "No such file or directory; the model is in 3 parts");
  // Fewer tensors than were said.
  TinyModelOptions smaller;
  smaller.config.num_layers = 1;
  write(paths[1], BuildTinyGgufParts(smaller, 3)[1]);
  expect(paths[0], absl::StatusCode::kInvalidArgument, "split.tensors.count is ");
}

// The fifth of three, beside the others.
TEST(WeightSourceTest, APartBehindTheLastIsRefused) {
  TemporaryDirectory directory;
  const std::string stem = directory.path() + "/m";
  WriteParts(stem, BuildTinyGgufParts(TinyModelOptions(), 3));
  for (const uint16_t number : {3, 4, 60'000}) {
    GgufWriter writer;
    writer.AddUint16("split.count", 3);
    writer.AddUint16("split.no", number);
    const std::string path = ToString(GgufPartName{stem, number, 3});
    std::ofstream(path, std::ios::binary) << writer.Build();
    const absl::Status status = WeightSource::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("GGUF: split.no is " + std::to_string(number) +
                                    ", must be less than split.count, 3"),
              std::string::npos)
        << status;
  }
}

TEST(WeightSourceTest, AFileThatWasMergedAgainIsOne) {
  GgufWriter writer;
  writer.AddUint16("split.count", 0);
  writer.AddUint16("split.no", 0);
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/merged.gguf";
  std::ofstream(path, std::ios::binary) << writer.Build();
  const absl::Status status = WeightSource::Open(path).status();
  EXPECT_NE(status.message().find("architecture"), std::string::npos) << status;
}

// Both forms of the tokenizer give the ids that an independent implementation gives.
TEST(WeightSourceTest, StoriesTokenizersAgree) {
  const std::unique_ptr<WeightSource> gguf = OpenStoriesAsGguf();
  const auto folder = WeightSource::Open(std::string(kStories) + "/hf");
  ASSERT_NE(gguf, nullptr);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto gguf_source = gguf->ReadTokenizer();
  const auto folder_source = (*folder)->ReadTokenizer();
  ASSERT_TRUE(gguf_source.ok()) << gguf_source.status();
  ASSERT_TRUE(folder_source.ok()) << folder_source.status();
  const auto a = CreateTokenizer(gguf_source->spec);
  const auto b =
      CreateSentencePieceTokenizer(folder_source->sentencepiece_model, folder_source->spec);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(folder_source->spec.eos, kvcache::TokenId{2});
  for (const char* text : {"Once upon a time", "Hello, world! 123", "  two  spaces"}) {
    EXPECT_EQ(*(*a)->Encode(text, {}), *(*b)->Encode(text, {})) << text;
  }
  using kvcache::TokenId;
  EXPECT_EQ(*(*a)->Encode("Once upon a time", {}),
            (std::vector{TokenId{1}, TokenId{403}, TokenId{407}, TokenId{261}, TokenId{378}}));
}

TEST(WeightSourceTest, RefusesWhatIsNoFile) {
  TemporaryDirectory directory;
  const std::string pipe = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(WeightSource::Open(pipe).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WeightSource::Open("").status().code(), absl::StatusCode::kNotFound);
  const std::string empty = directory.path() + "/empty";
  std::ofstream(empty).close();
  EXPECT_EQ(WeightSource::Open(empty).status().code(), absl::StatusCode::kInvalidArgument);
}

// Paths that people give who have a model, in another form or place.
TEST(WeightSourceTest, SaysWhatAWrongPathHas) {
  TemporaryDirectory directory;
  const std::string& path = directory.path();
  const auto error = [](const std::string& of) {
    return std::string(WeightSource::Open(of).status().message());
  };
  const auto write = [&](const char* name) { std::ofstream(path + "/" + name) << "{}"; };
  EXPECT_EQ(error(path).find(';'), std::string::npos) << error(path);
  const auto expect = [&](const char* hint) {
    EXPECT_NE(error(path).find(hint), std::string::npos) << error(path);
  };
  write("adapter_config.json");
  expect("config.json\": No such file or directory; the folder is a LoRA adapter");
  std::filesystem::remove(path + "/adapter_config.json");
  write("pytorch_model-00001-of-00002.bin");
  expect("; the folder has \"pytorch_model-00001-of-00002.bin\": of such");
  std::ofstream(path + "/config.json") << "{}";
  write("mmproj-m.gguf");
  write("m.Q8_0.gguf");
  std::filesystem::remove(path + "/config.json");
  expect("; the folder has \"m.Q8_0.gguf\": give the path of that file");
  write("m.Q4_0.gguf");
  expect("; the folder has 2 GGUF models: give the path of one");
  std::filesystem::remove(path + "/m.Q8_0.gguf");
  std::filesystem::remove(path + "/m.Q4_0.gguf");
  write("m-00001-of-00002.gguf");
  write("m-00002-of-00002.gguf");
  expect("; the folder has \"m-00001-of-00002.gguf\": give the path of that file");
  write("model-00001-of-00002.safetensors");  // it lacks something else
  EXPECT_EQ(error(path).find("the folder has"), std::string::npos) << error(path);
  write("config.json");
  write("model.safetensors");
  const std::string part = error(path + "/model.safetensors");
  EXPECT_NE(part.find("it lies in a Hugging Face folder: give the path of that folder"),
            std::string::npos)
      << part;
  EXPECT_EQ(error(path + "/no.safetensors").find("give"), std::string::npos);
}

// Resident file-backed bytes of this process.
int64_t ResidentFileKib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t kib = 0;
    if (word == "RssFile:" && status >> kib) return kib;
  }
  return -1;
}

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    path_ = std::string(cache != nullptr ? cache
                                         : std::string(home != nullptr ? home : "") + "/.cache") +
            "/refrain/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is not there";
  }
  std::string path_;
};

TEST_F(SmolLm2Test, IsDescribedInFull) {
  const auto source = WeightSource::Open(path_);
  ASSERT_TRUE(source.ok()) << source.status();
  const ModelConfig& config = (*source)->config();
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.hidden_size, 576);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.ffn_size, 1536);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.max_context_tokens, 8192);
  EXPECT_EQ(config.rope.theta, 100000.0);
  EXPECT_EQ(config.rms_eps, 9.999999747378752e-06);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ((*source)->Get(TensorRole::kTokenEmbedding)->dtype, kernels::DType::kQ8_0);
  EXPECT_EQ((*source)->Get(TensorRole::kAttnK, 29)->dtype, kernels::DType::kQ4_1);
  EXPECT_NE((*source)->description().find("61 f32, 1 q8_0, 210 q4_1"), std::string::npos)
      << (*source)->description();
  const auto tokenizer = (*source)->ReadTokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->spec.tokens.size(), 49152u);
  EXPECT_EQ(tokenizer->spec.merges.size(), 48900u);
  EXPECT_EQ(tokenizer->spec.pre_tokenizer, "smollm");
  EXPECT_EQ(tokenizer->spec.add_bos, false);
  EXPECT_EQ(tokenizer->spec.eos, kvcache::TokenId{2});
  EXPECT_TRUE(CreateTokenizer(tokenizer->spec).ok());
}

// Opening and reading the vocabulary is a small part of a start in under a second. The limit is ten
// times what it takes, for sanitizers and busy machines.
TEST_F(SmolLm2Test, OpensQuickly) {
  const auto begin = std::chrono::steady_clock::now();
  const auto source = WeightSource::Open(path_);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto opened = std::chrono::steady_clock::now();
  ASSERT_TRUE((*source)->ReadTokenizer().ok());
  const std::chrono::duration<double, std::milli> open_ms = opened - begin;
  const std::chrono::duration<double, std::milli> all_ms = std::chrono::steady_clock::now() - begin;
  RecordProperty("open_us", static_cast<int>(open_ms.count() * 1000));
  std::printf("opened in %.2f ms, with the vocabulary in %.2f ms\n", open_ms.count(),
              all_ms.count());
  EXPECT_LT(all_ms.count(), 600);
}

// What loading has read is not resident once it is packed.
TEST_F(SmolLm2Test, GivesItsPagesBackWhenItIsClosed) {
  auto source = WeightSource::Open(path_);
  ASSERT_TRUE(source.ok()) << source.status();
  unsigned total = 0;
  for (int layer = 0; layer < 30; ++layer) {
    const WeightView view = *(*source)->Get(TensorRole::kFfnDown, layer);
    for (size_t i = 0; i < view.bytes; i += 64) total += static_cast<unsigned>(view.data[i]);
  }
  const WeightView view = *(*source)->Get(TensorRole::kTokenEmbedding);
  for (size_t i = 0; i < view.bytes; i += 64) total += static_cast<unsigned>(view.data[i]);
  EXPECT_NE(total, 0u);
  const int64_t touched_kib = ResidentFileKib();
  source->reset();
  EXPECT_LT(ResidentFileKib(), touched_kib - 40 * 1024);
}

}  // namespace
}  // namespace refrain::engine
