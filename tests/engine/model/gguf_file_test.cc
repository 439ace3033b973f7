#include "engine/model/gguf_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/gguf_metadata.h"
#include "engine/model/gguf_model.h"
#include "tests/support/colliding_keys.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace refrain::engine {
namespace {

using refrain::testing::BuildTinyGguf;
using refrain::testing::CollidingKeys;
using refrain::testing::ExpectError;
using refrain::testing::GgufWriter;
using refrain::testing::TinyModelOptions;

std::span<const std::byte> BytesOf(const std::string& file) {
  return std::as_bytes(std::span(file));
}

absl::Status Parse(const std::string& file) { return GgufFile::Parse(BytesOf(file)).status(); }

void ExpectDamaged(const std::string& file, std::string_view text) {
  ExpectError(Parse(file), absl::StatusCode::kInvalidArgument, text);
}

// A model of 4 KB: one layer of 32, 16 tokens.
TinyModelOptions MicroModel() {
  TinyModelOptions options;
  options.config.num_layers = 1;
  options.config.hidden_size = 32;
  options.config.num_heads = 2;
  options.config.num_kv_heads = 1;
  options.config.head_dim = options.config.rope.dim = 16;
  options.config.ffn_size = 32;
  options.config.vocab_size = 16;
  options.config.rope.scaling = RopeScaling::kYarn;
  options.config.rope.factor = 4.0;
  options.config.rope.original_context_tokens = 128;
  options.matrix_dtype = kernels::DType::kQ8_0;
  options.config.tied_embeddings = false;
  options.vocabulary = false;
  return options;
}

// Everything that opening a model does, over bytes in an allocation of exactly their size, so that
// an address sanitizer sees a read behind them. Touches all bytes of all weights.
absl::Status OpenFully(const std::string& file) {
  const auto exact = std::make_unique<std::byte[]>(file.size());
  std::memcpy(exact.get(), file.data(), file.size());
  const absl::StatusOr<GgufFile> parsed = GgufFile::Parse({exact.get(), file.size()});
  if (!parsed.ok()) return parsed.status();
  const absl::StatusOr<TokenizerSpec> tokenizer = ReadGgufTokenizer(*parsed);
  if (!tokenizer.ok() && !absl::IsNotFound(tokenizer.status())) return tokenizer.status();
  const absl::StatusOr<ModelConfig> config = ReadGgufConfig(*parsed);
  if (!config.ok()) return config.status();
  const absl::StatusOr<TensorTable> table = BindGgufTensors(*parsed, *config);
  if (!table.ok()) return table.status();
  unsigned sum = 0;
  for (int role = 0; role < kNumTensorRoles; ++role) {
    for (int layer = 0; layer < config->num_layers; ++layer) {
      const absl::StatusOr<WeightView> view = table->Get(static_cast<TensorRole>(role), layer);
      if (!view.ok()) continue;
      EXPECT_EQ(view->bytes, *kernels::RowBytes(view->dtype, view->cols) * view->rows);
      for (size_t i = 0; i < view->bytes; ++i) sum += static_cast<unsigned>(view->data[i]);
    }
  }
  return sum == 0 ? absl::UnknownError("all weights are zero") : absl::OkStatus();
}

TEST(GgufFileTest, ReadsBothVersions) {
  for (const uint32_t version : {2, 3}) {
    GgufWriter writer;
    writer.set_version(version);
    writer.AddUint32("a.number", 7);
    writer.AddTensor("t", 0, {4, 2}, std::string(32, 'x'));
    const std::string bytes = writer.Build();
    const absl::StatusOr<GgufFile> file = GgufFile::Parse(BytesOf(bytes));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->version(), version);
    ASSERT_NE(file->FindOrNull("a.number"), nullptr);
    EXPECT_EQ(file->FindOrNull("a.other"), nullptr);
    ASSERT_EQ(file->tensors().size(), 1u);
    EXPECT_EQ(file->tensors()[0].shape, (std::vector<int64_t>{2, 4}));
    EXPECT_EQ(file->tensors()[0].data.size(), 32u);
    EXPECT_EQ(static_cast<char>(file->tensors()[0].data[31]), 'x');
  }
}

// Lengths that have grown since they were checked lead nowhere else.
TEST(GgufFileTest, AFileThatIsWrittenToMeanwhileIsReadWithinItsBounds) {
  GgufWriter writer;
  writer.AddRaw("text", GgufWriter::kTypeString, std::string("\3\0\0\0\0\0\0\0abc", 11));
  std::string bytes = writer.Build();
  const absl::StatusOr<GgufFile> file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  GgufMetadata metadata(*file);
  EXPECT_EQ(metadata.String("text"), "abc");
  bytes[bytes.find("abc") - 2] = '\x7f';
  EXPECT_EQ(metadata.String("text"), "abc");
}

// The file cut at each byte of its header, and inside of its data, is an error.
TEST(GgufFileTest, RefusesEveryTruncation) {
  const std::string file = BuildTinyGguf(MicroModel());
  ASSERT_TRUE(OpenFully(file).ok()) << OpenFully(file);
  // The last tensor may be followed by padding.
  for (size_t size = 0; size + 32 < file.size(); ++size) {
    const absl::Status status = OpenFully(file.substr(0, size));
    ASSERT_FALSE(status.ok()) << "of " << file.size() << " bytes, " << size << " were enough";
    if (size >= 8) {
      ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    }
  }
}

// Each single bit of the header turned over: an error or a model whose views are in bounds.
TEST(GgufFileTest, SurvivesEveryFlippedBitOfTheHeader) {
  for (const bool vocabulary : {false, true}) {
    TinyModelOptions options = MicroModel();
    options.vocabulary = vocabulary;
    if (vocabulary) options.config.vocab_size = 260;
    const std::string file = BuildTinyGguf(options);
    const absl::StatusOr<GgufFile> parsed = GgufFile::Parse(BytesOf(file));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const size_t header = parsed->tensors()[0].data.data() - BytesOf(file).data();
    int refused = 0, accepted = 0;
    for (size_t byte = 0; byte < header; ++byte) {
      // With a vocabulary the header is 20 times as long: one bit of each byte then.
      for (int bit = vocabulary ? static_cast<int>(byte % 8) : 0; bit < 8;
           bit += vocabulary ? 8 : 1) {
        std::string damaged = file;
        damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
        ++(OpenFully(damaged).ok() ? accepted : refused);
      }
    }
    EXPECT_GT(refused, 1000);
    EXPECT_GT(accepted, 100);  // names that nobody reads, token texts, numbers in range
  }
}

TEST(GgufFileTest, RefusesWhatIsNoGguf) {
  ExpectDamaged("", "does not begin with GGUF");
  ExpectDamaged("GGU", "does not begin with GGUF");
  ExpectDamaged("PK\3\4 and more of it", "does not begin with GGUF");
  for (const uint32_t version : {0u, 1u, 4u}) {
    GgufWriter writer;
    writer.set_version(version);
    ExpectError(Parse(writer.Build()), absl::StatusCode::kUnimplemented, "version");
  }
  GgufWriter big_endian;
  big_endian.set_version(3u << 24);
  ExpectError(Parse(big_endian.Build()), absl::StatusCode::kUnimplemented, "big-endian");
}

// Counts and lengths that would overflow or allocate gigabytes are refused before they are used.
TEST(GgufFileTest, RefusesHugeCounts) {
  for (const uint64_t count : {uint64_t{1} << 32, UINT64_MAX, UINT64_MAX / 4 + 1}) {
    const auto* count_bytes = reinterpret_cast<const char*>(&count);
    for (const uint32_t element : {0u, 4u, 8u, 12u}) {
      GgufWriter writer;
      writer.AddRaw("array", GgufWriter::kTypeArray,
                    std::string(reinterpret_cast<const char*>(&element), 4) +
                        std::string(count_bytes, 8) + std::string(64, '\0'));
      ExpectDamaged(writer.Build(), "\"array\"");
    }
    GgufWriter text;
    text.AddRaw("text", GgufWriter::kTypeString, std::string(count_bytes, 8) + "abc");
    ExpectDamaged(text.Build(), "\"text\"");
    for (const size_t field : {8, 16}) {
      std::string file = GgufWriter().Build() + std::string(100, '\0');
      file.replace(field, 8, count_bytes, 8);
      const size_t rest = file.size() - 24;
      const size_t most = rest / (field == 8 ? 24 : 13);
      ExpectDamaged(file, std::to_string(count) + (field == 8 ? " tensors" : " metadata values") +
                              "; the " + std::to_string(rest) +
                              " bytes behind the header hold at most " + std::to_string(most));
    }
  }
}

TEST(GgufFileTest, RefusesBadKeys) {
  GgufWriter twice;
  twice.AddUint32("key", 1);
  twice.AddUint32("key", 1);
  ExpectDamaged(twice.Build(), "\"key\" is there twice");
  GgufWriter empty;
  empty.AddUint32("", 1);
  ExpectDamaged(empty.Build(), "0 bytes");
  GgufWriter long_key;
  long_key.AddUint32(std::string(65536, 'k'), 1);
  ExpectDamaged(long_key.Build(), "65536 bytes");
  GgufWriter unknown_type;
  unknown_type.AddRaw("key", 13, "12345678");
  ExpectDamaged(unknown_type.Build(), "unknown type 13");
  GgufWriter nested;
  nested.AddRaw("key", GgufWriter::kTypeArray, std::string("\x9\0\0\0\1\0\0\0\0\0\0\0", 12));
  ExpectError(Parse(nested.Build()), absl::StatusCode::kUnimplemented, "array of arrays");
}

TEST(GgufFileTest, RefusesBadTensors) {
  const std::string data(128, 'x');
  const auto damaged = [&](std::string_view text, auto add) {
    GgufWriter writer;
    add(writer);
    ExpectDamaged(writer.Build() + data, text);
  };
  damaged("\"t\" is there twice", [&](GgufWriter& w) {
    w.AddTensor("t", 0, {4}, data.substr(0, 16));
    w.AddTensor("t", 0, {4}, data.substr(0, 16));
  });
  damaged("0 dimensions", [](GgufWriter& w) { w.AddTensorAt("t", 0, {}, 0); });
  damaged("5 dimensions", [](GgufWriter& w) { w.AddTensorAt("t", 0, {1, 1, 1, 1, 1}, 0); });
  damaged("extent of 0", [](GgufWriter& w) { w.AddTensorAt("t", 0, {4, 0}, 0); });
  damaged("extent", [](GgufWriter& w) { w.AddTensorAt("t", 0, {1ull << 40, 1ull << 40}, 0); });
  damaged("extent", [](GgufWriter& w) { w.AddTensorAt("t", 0, {UINT64_MAX}, 0); });
  damaged("does not fit", [](GgufWriter& w) { w.AddTensorAt("t", 0, {1ull << 62}, 0); });
  damaged("does not fit", [](GgufWriter& w) { w.AddTensorAt("t", 0, {33}, 0); });
  damaged("does not fit", [](GgufWriter& w) { w.AddTensorAt("t", 0, {4}, UINT64_MAX - 31); });
  damaged("does not fit", [](GgufWriter& w) { w.AddTensorAt("t", 0, {1}, 128); });
  damaged("alignment", [](GgufWriter& w) { w.AddTensorAt("t", 0, {4}, 16); });
  damaged("block of Q8_0", [](GgufWriter& w) { w.AddTensorAt("t", 8, {33}, 0); });
  damaged("overlap", [](GgufWriter& w) {
    w.AddTensorAt("t", 0, {9}, 0);
    w.AddTensorAt("u", 0, {4}, 32);
  });
}

TEST(GgufFileTest, ObeysTheAlignmentKey) {
  GgufWriter writer;
  writer.set_alignment(256);
  writer.AddUint32("general.alignment", 256);
  writer.AddTensor("t", 0, {1}, "abcd");
  writer.AddTensor("u", 0, {1}, "efgh");
  const std::string bytes = writer.Build();
  const absl::StatusOr<GgufFile> file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(std::memcmp(file->tensors()[1].data.data(), "efgh", 4), 0);
  EXPECT_EQ((file->tensors()[1].data.data() - BytesOf(bytes).data()) % 256, 0);
  for (const uint32_t alignment : {0u, 3u, 1u << 31}) {
    GgufWriter wrong;
    wrong.AddUint32("general.alignment", alignment);
    ExpectDamaged(wrong.Build(), "power of two");
  }
}

// A type that is not run matters only when something needs the tensor.
TEST(GgufFileTest, ListsTensorsOfUnknownTypes) {
  GgufWriter writer;
  writer.AddTensorAt("t", 10, {256}, 0);
  writer.AddTensorAt("u", 999, {256}, 0);
  const std::string bytes = writer.Build();
  const absl::StatusOr<GgufFile> file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors()[0].type_name, "Q2_K");
  EXPECT_FALSE(file->tensors()[0].dtype.has_value());
  EXPECT_FALSE(file->tensors()[1].dtype.has_value());
  EXPECT_EQ(file->tensors()[1].type_name, "number 999");
}

// The types of files up to 2026, those that llama.cpp gave up again too.
TEST(GgufFileTest, NamesTheTypesItDoesNotRun) {
  GgufWriter writer;
  for (const uint32_t number : {31, 36, 39, 40, 41, 42}) {
    writer.AddTensorAt(std::to_string(number), number, {256}, 0);
  }
  const std::string bytes = writer.Build();
  const absl::StatusOr<GgufFile> file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> names;
  for (const SourceTensor& tensor : file->tensors()) names.emplace_back(tensor.type_name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"Q4_0_4_4", "IQ4_NL_4_4", "MXFP4", "NVFP4", "Q1_0", "Q2_0"}));
}

// What a hostile file calls its keys cannot break a log or a JSON error body.
TEST(GgufFileTest, EscapesNamesInMessages) {
  GgufWriter writer;
  writer.AddRaw("k\n\xff\"" + std::string(500, 'z'), 99, "");
  const absl::Status status = Parse(writer.Build());
  ExpectError(status, absl::StatusCode::kInvalidArgument, "k\\n\\xff\\\"");
  EXPECT_LT(status.message().size(), 300u);
}

double SecondsToParse(const std::vector<std::string>& keys) {
  GgufWriter writer;
  for (const std::string& key : keys) writer.AddUint32(key, 1);
  const std::string file = writer.Build();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(GgufFile::Parse(BytesOf(file)).ok());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Who writes a file chooses its keys.
TEST(GgufFileTest, TakesAsLongForKeysThatCollideUnderAKnownHash) {
  const std::vector<std::string> colliding = CollidingKeys(14);
  ASSERT_EQ(std::hash<std::string_view>()(colliding.front()),
            std::hash<std::string_view>()(colliding.back()));
  std::vector<std::string> others = colliding;
  for (size_t i = 0; i < others.size(); ++i) {
    for (size_t j = 0; j < others[i].size(); ++j) {
      others[i][j] = static_cast<char>('a' + (i >> (j % 16)) % 16);
    }
  }
  EXPECT_LT(SecondsToParse(colliding), 10 * SecondsToParse(others) + 0.01);
}

}  // namespace
}  // namespace refrain::engine
