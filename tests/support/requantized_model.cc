#include "tests/support/requantized_model.h"

#include <cstring>
#include <fstream>
#include <span>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/gguf_file.h"
#include "engine/model/mapped_file.h"
#include "kernels/reference/dequantize.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/quantize.h"
#include "tests/support/tiny_model.h"

namespace refrain::testing {
namespace {

using engine::SourceTensor;
using kernels::DType;

constexpr uint64_t kAlignment = 32;  // the format's default

DType TypeOf(const SourceTensor& tensor, DType wanted) {
  return tensor.shape.size() == 1 ? *tensor.dtype : TypeOfRows(wanted, tensor.shape.back());
}

int64_t RowsOf(const SourceTensor& tensor) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

uint64_t StoredBytes(const SourceTensor& tensor, DType dtype) {
  return RowsOf(tensor) * *kernels::RowBytes(dtype, tensor.shape.back());
}

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The keys lie between the counts at the front and the first tensor's name, whose length is a u64.
void CopyMetadata(std::string_view bytes, const SourceTensor& first, GgufWriter& writer) {
  constexpr size_t kCountsEnd = 24;
  uint64_t num_values;
  std::memcpy(&num_values, bytes.data() + 16, sizeof(num_values));
  const auto end = static_cast<size_t>(first.name.data() - bytes.data()) - sizeof(uint64_t);
  writer.AddValues(num_values, bytes.substr(kCountsEnd, end - kCountsEnd));
}

void WriteTensor(const SourceTensor& tensor, DType dtype, std::ofstream& out) {
  const int64_t cols = tensor.shape.back();
  const size_t row_bytes = *kernels::RowBytes(*tensor.dtype, cols);
  std::vector<float> row(cols);
  for (int64_t i = 0; i < RowsOf(tensor); ++i) {
    kernels::DequantizeRow(*tensor.dtype, tensor.data.data() + i * row_bytes, cols, row.data());
    out << QuantizeRow(dtype, row);
  }
  const uint64_t written = StoredBytes(tensor, dtype);
  out << std::string(Aligned(written) - written, '\0');
}

}  // namespace

DType TypeOfRows(DType wanted, int64_t cols) {
  if (cols % kernels::Traits(wanted).block_elements == 0) return wanted;
  if (wanted == DType::kQ4_K) return DType::kQ5_0;
  if (wanted == DType::kQ5_K) return DType::kQ5_1;
  return DType::kQ8_0;
}

absl::Status WriteRequantized(const std::string& from, DType wanted, const std::string& to) {
  const auto mapped = engine::MappedFile::Open(from);
  if (!mapped.ok()) return mapped.status();
  const auto file = engine::GgufFile::Parse((*mapped)->bytes());
  if (!file.ok()) return file.status();
  if (file->FindOrNull("general.alignment") != nullptr || file->tensors().empty()) {
    return absl::UnimplementedError(absl::StrCat(from, ": an alignment of its own, or no tensors"));
  }
  GgufWriter header;
  header.set_version(file->version());
  CopyMetadata((*mapped)->text(), file->tensors().front(), header);
  uint64_t offset = 0;
  for (const SourceTensor& tensor : file->tensors()) {
    if (!tensor.dtype.has_value()) {
      return absl::UnimplementedError(absl::StrCat(from, ": type ", std::string(tensor.type_name)));
    }
    const DType dtype = TypeOf(tensor, wanted);
    const std::vector<uint64_t> extents(tensor.shape.rbegin(), tensor.shape.rend());
    header.AddTensorAt(tensor.name, GgmlTypeOf(dtype), extents, offset);
    offset += Aligned(StoredBytes(tensor, dtype));
  }
  std::ofstream out(to, std::ios::binary);
  out << header.Build();
  for (const SourceTensor& tensor : file->tensors()) {
    WriteTensor(tensor, TypeOf(tensor, wanted), out);
  }
  out.close();
  if (out) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", to));
}

}  // namespace refrain::testing
