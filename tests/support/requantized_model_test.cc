#include "tests/support/requantized_model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/weight_source.h"
#include "kernels/reference/dequantize.h"
#include "tests/support/quantize.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_model.h"

namespace refrain::testing {
namespace {

using engine::TensorRole;
using engine::WeightSource;
using engine::WeightView;
using kernels::DType;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Rows of 192 elements, no whole K block, but for ffn_down's of 512.
std::string WriteNarrowModel(DType dtype, const std::string& directory) {
  TinyModelOptions options;
  options.config.hidden_size = 192;
  options.config.num_heads = 3;
  options.config.num_kv_heads = 1;
  options.matrix_dtype = dtype;
  const auto path = WriteTinyGguf(options, directory);
  EXPECT_TRUE(path.ok()) << path.status();
  return path.value_or("");
}

std::vector<float> RowOf(const WeightView& view, int64_t row) {
  std::vector<float> values(view.cols);
  const size_t row_bytes = *kernels::RowBytes(view.dtype, view.cols);
  kernels::DequantizeRow(view.dtype, view.data + row * row_bytes, view.cols, values.data());
  return values;
}

void ExpectRequantized(const WeightView& got, const WeightView& from, DType dtype,
                       const std::string& name) {
  ASSERT_EQ(got.dtype, dtype) << name;
  ASSERT_EQ(got.rows, from.rows) << name;
  ASSERT_EQ(got.cols, from.cols) << name;
  std::string expected;
  for (int64_t row = 0; row < from.rows; ++row) expected += QuantizeRow(dtype, RowOf(from, row));
  const std::string bytes(reinterpret_cast<const char*>(got.data), got.bytes);
  EXPECT_TRUE(bytes == expected) << name;
}

TEST(RequantizedModelTest, CopyInItsOwnTypeIsTheSameFile) {
  TemporaryDirectory directory;
  const std::string from = WriteNarrowModel(DType::kF32, directory.path());
  const std::string to = directory.path() + "/copy.gguf";
  ASSERT_TRUE(WriteRequantized(from, DType::kF32, to).ok());
  EXPECT_TRUE(ReadFile(to) == ReadFile(from));
}

TEST(RequantizedModelTest, EveryMatrixIsRoundedFromWhatTheFileHasAndVectorsAreCopied) {
  TemporaryDirectory directory;
  const std::string from = WriteNarrowModel(DType::kQ4_1, directory.path());
  const auto source = WeightSource::Open(from);
  ASSERT_TRUE(source.ok()) << source.status();
  for (const kernels::DTypeTraits& type : kernels::kDTypes) {
    const std::string to = directory.path() + "/" + std::string(type.name) + ".gguf";
    ASSERT_TRUE(WriteRequantized(from, type.dtype, to).ok());
    const auto copy = WeightSource::Open(to);
    ASSERT_TRUE(copy.ok()) << copy.status();
    for (int i = 0; i < engine::kNumTensorRoles; ++i) {
      const auto role = static_cast<TensorRole>(i);
      const int layer = engine::IsPerLayer(role) ? 1 : 0;
      if (!(*source)->Has(role, layer)) continue;
      const WeightView view = *(*source)->Get(role, layer);
      const DType dtype = engine::IsVector(role) ? DType::kF32 : TypeOfRows(type.dtype, view.cols);
      ExpectRequantized(*(*copy)->Get(role, layer), view, dtype, to + ": " + std::to_string(i));
    }
  }
}

TEST(RequantizedModelTest, RowsWithoutWholeKBlocksGetWhatLlamaCppGivesThem) {
  EXPECT_EQ(TypeOfRows(DType::kQ4_K, 1536), DType::kQ4_K);
  EXPECT_EQ(TypeOfRows(DType::kQ4_K, 576), DType::kQ5_0);
  EXPECT_EQ(TypeOfRows(DType::kQ5_K, 576), DType::kQ5_1);
  EXPECT_EQ(TypeOfRows(DType::kQ6_K, 576), DType::kQ8_0);
  EXPECT_EQ(TypeOfRows(DType::kQ4_0, 576), DType::kQ4_0);
}

TEST(RequantizedModelTest, RefusesAPathThatCannotBeWrittenOrRead) {
  TemporaryDirectory directory;
  const std::string from = WriteNarrowModel(DType::kF32, directory.path());
  EXPECT_TRUE(absl::IsUnavailable(
      WriteRequantized(from, DType::kF16, directory.path() + "/missing/copy.gguf")));
  EXPECT_TRUE(absl::IsNotFound(WriteRequantized(directory.path() + "/missing.gguf", DType::kF16,
                                                directory.path() + "/copy.gguf")));
}

}  // namespace
}  // namespace refrain::testing
