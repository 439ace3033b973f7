#include "engine/model/safetensors_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "tests/support/expect_error.h"
#include "tests/support/safetensors_writer.h"

namespace refrain::engine {
namespace {

using refrain::testing::ExpectError;
using refrain::testing::SafetensorsFileOf;
using refrain::testing::SafetensorsWriter;

absl::StatusOr<SafetensorsFile> Parse(const std::string& file) {
  return SafetensorsFile::Parse(std::as_bytes(std::span(file)));
}

void ExpectDamaged(const std::string& file, std::string_view text) {
  ExpectError(Parse(file).status(), absl::StatusCode::kInvalidArgument, text);
}

std::string GoodFile() {
  SafetensorsWriter writer;
  writer.AddEntry("__metadata__", R"({"format":"pt"})");
  writer.AddTensor("b", "F32", {2, 3}, "abcdefghijklmnopqrstuvwx");
  writer.AddTensor("a", "BF16", {2}, "0123");
  writer.AddTensor("c", "I64", {1}, "abcdefgh");
  return writer.Build();
}

TEST(SafetensorsFileTest, ListsTensorsByName) {
  const std::string bytes = GoodFile();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors().size(), 3u);
  const SourceTensor& a = file->tensors()[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, kernels::DType::kBF16);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2}));
  ASSERT_EQ(a.data.size(), 4u);
  EXPECT_EQ(std::memcmp(a.data.data(), "0123", 4), 0);
  EXPECT_EQ(file->tensors()[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file->tensors()[2].type_name, "\"I64\"");
  EXPECT_FALSE(file->tensors()[2].dtype.has_value());
}

TEST(SafetensorsFileTest, RefusesEveryTruncation) {
  const std::string file = GoodFile();
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(Parse(file.substr(0, size)).ok()) << size;
  }
}

// Each bit of length and header turned over: an error, or tensors inside of the file.
TEST(SafetensorsFileTest, SurvivesEveryFlippedBit) {
  const std::string file = GoodFile();
  int refused = 0;
  for (size_t bit = 0; bit < 8 * (file.size() - 36); ++bit) {
    const auto damaged = std::make_unique<std::byte[]>(file.size());
    std::memcpy(damaged.get(), file.data(), file.size());
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    const auto parsed = SafetensorsFile::Parse({damaged.get(), file.size()});
    if (!parsed.ok()) {
      ++refused;
      continue;
    }
    for (const SourceTensor& tensor : parsed->tensors()) {
      if (tensor.data.empty()) continue;
      EXPECT_GE(tensor.data.data(), damaged.get());
      EXPECT_LE(tensor.data.data() + tensor.data.size(), damaged.get() + file.size());
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(SafetensorsFileTest, RefusesBadHeaders) {
  ExpectDamaged("1234567", "7 bytes");
  std::string huge = GoodFile();
  huge.replace(0, 8, 8, '\xff');
  ExpectDamaged(huge, "18446744073709551615");
  ExpectDamaged(SafetensorsFileOf("[]", ""), "not a JSON object");
  ExpectDamaged(SafetensorsFileOf("{\"a\":", ""), "not valid JSON: ends too early, after 5 bytes");
  ExpectDamaged(SafetensorsFileOf("{\"\xff\":1}", ""), "not valid JSON: wrong at byte 3 of 7");
  ExpectDamaged(SafetensorsFileOf("{\"a\":1e999}", ""), "number that ends at byte 10 of 11 is too");
  ExpectDamaged(SafetensorsFileOf("{\"a\":" + std::string(100000, '['), ""), "nested");
  // The length is a claim about the file, not a size to allocate.
  ExpectDamaged(SafetensorsFileOf(std::string((33 << 20), ' ') + "{}", ""), "at most");
}

TEST(SafetensorsFileTest, RefusesBadEntries) {
  const auto entry = [](const std::string& json) {
    return SafetensorsFileOf("{\"t\":" + json + "}", std::string(16, 'x'));
  };
  ExpectDamaged(entry("1"), "dtype");
  ExpectDamaged(entry(R"({"shape":[4],"data_offsets":[0,16]})"), "dtype");
  ExpectDamaged(entry(R"({"dtype":3,"shape":[4],"data_offsets":[0,16]})"), "dtype");
  ExpectDamaged(entry(R"({"dtype":"F32","data_offsets":[0,16]})"), "shape");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"), "shape");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[4.0],"data_offsets":[0,16]})"), "shape");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16]})"),
                "shape");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]})"),
                "shape");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[4]})"), "data_offsets");
  ExpectDamaged(
      entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0]})"),
      "\"t\" has the data_offsets [0], must be two integers from 0 to 9223372036854775807");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[4],"data_offsets":[-16,0]})"),
                "has the data_offsets [-16,0], must be two integers from 0");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,18446744073709551615]})"),
                "has the data_offsets [0,18446744073709551615], must be");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"),
                "\"t\" has the shape [-4], must be up to 8 integers from 0 to");
  ExpectDamaged(entry(R"({"dtype":3,"shape":[4],"data_offsets":[0,16]})"),
                "\"t\" has the dtype 3, must be a string");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,17]})"), "16 bytes");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[0],"data_offsets":[16,0]})"), "16 bytes");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"), "ask for 12");
  ExpectDamaged(entry(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]})"),
                "more than 2^63");
}

TEST(SafetensorsFileTest, RefusesOverlapsAndDuplicates) {
  const std::string part = R"({"dtype":"F32","shape":[2],"data_offsets":[)";
  ExpectDamaged(
      SafetensorsFileOf("{\"t\":" + part + "0,8]},\"u\":" + part + "4,12]}}", std::string(16, 'x')),
      "overlaps");
  ExpectDamaged(
      SafetensorsFileOf("{\"t\":" + part + "0,8]},\"t\":" + part + "8,16]}}", std::string(16, 'x')),
      "\"t\" is there twice");
}

// As the format's own library does: else two readers of a file could see different things in it.
TEST(SafetensorsFileTest, RefusesBytesThatNoTensorCovers) {
  struct BadCover {
    const char* header;
    const char* message;
  };
  constexpr char kFirst[] = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const BadCover kBad[] = {
      {"}", "the tensors cover 8 of 16 bytes of data"},
      {R"(,"u":{"dtype":"U8","shape":[7],"data_offsets":[8,15]}})",
       "the tensors cover 15 of 16 bytes of data"},
      {R"(,"u":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})",
       "tensor \"u\" begins at byte 12 of the data, the tensors before it end at 8"},
      {R"(,"u":{"dtype":"new","shape":[1],"data_offsets":[9,16]}})",
       "tensor \"u\" begins at byte 9 of the data, the tensors before it end at 8"},
      {R"(,"u":{"dtype":"new","shape":[1],"data_offsets":[7,16]}})", "tensor \"t\" overlaps \"u\""},
      {R"(,"u":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
       R"("v":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
       "tensor \"t\" overlaps \"v\""},
  };
  for (const BadCover& bad : kBad) {
    ExpectDamaged(SafetensorsFileOf(std::string(kFirst) + bad.header, std::string(16, 'x')),
                  bad.message);
  }
  ExpectDamaged(SafetensorsFileOf("{}", "x"), "the tensors cover 0 of 1 bytes of data");
  ExpectDamaged(GoodFile() + "x", "the tensors cover 36 of 37 bytes of data");
  // Empty tensors lie at the border of others.
  const auto parsed = Parse(SafetensorsFileOf(
      std::string(kFirst) + R"(,"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                            R"("u":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
                            R"("v":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},)"
                            R"("w":{"dtype":"F32","shape":[0,3],"data_offsets":[16,16]}})",
      std::string(16, 'x')));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
}

}  // namespace
}  // namespace refrain::engine
