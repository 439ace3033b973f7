#include "engine/model/safetensors_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/quoted_name.h"
#include "engine/model/strict_json.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "lengths are read as they lie");

// A model of 1,000 layers has a header of 2 MB.
constexpr uint64_t kMaxHeaderBytes = 32 << 20;
constexpr size_t kMaxDims = 8;

struct ElementType {
  std::string_view name;
  int bytes;
  std::optional<kernels::DType> dtype;
};

constexpr std::array<ElementType, 14> kElementTypes = {{
    {"F32", 4, kernels::DType::kF32},
    {"F16", 2, kernels::DType::kF16},
    {"BF16", 2, kernels::DType::kBF16},
    {"F64", 8, std::nullopt},
    {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
    {"I64", 8, std::nullopt},
    {"I32", 4, std::nullopt},
    {"I16", 2, std::nullopt},
    {"I8", 1, std::nullopt},
    {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},
    {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
}};

const ElementType* FindElementTypeOrNull(std::string_view name) {
  const auto* found = std::find_if(kElementTypes.begin(), kElementTypes.end(),
                                   [&](const ElementType& type) { return type.name == name; });
  return found == kElementTypes.end() ? nullptr : found;
}

absl::Status Error(const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat("safetensors: ", text));
}

absl::Status TensorError(std::string_view name, const std::string& text) {
  return Error(absl::StrCat("tensor ", QuotedName(name), " ", text));
}

absl::Status WrongMember(std::string_view name, const Json& entry, const char* key,
                         const std::string& valid) {
  const auto found = entry.find(key);
  if (found == entry.end()) return TensorError(name, absl::StrCat("has no ", key));
  return TensorError(name,
                     absl::StrCat("has the ", key, " ", ShownJson(*found), ", must be ", valid));
}

// Where a tensor lies in the data: its first byte and the one behind its last.
using Extent = std::pair<int64_t, int64_t>;

// nullopt: not an array of at most `max_count` unsigned integers up to INT64_MAX.
std::optional<std::vector<int64_t>> UnsignedList(const Json& entry, const char* key,
                                                 size_t max_count) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array() || found->size() > max_count) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& element : *found) {
    if (!element.is_number_unsigned() || element.get<uint64_t>() > INT64_MAX) return std::nullopt;
    numbers.push_back(static_cast<int64_t>(element.get<uint64_t>()));
  }
  return numbers;
}

// Bytes of the whole tensor, or nullopt when that overflows.
std::optional<int64_t> TensorBytes(const std::vector<int64_t>& shape, int element_bytes) {
  int64_t size = element_bytes;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(size, extent, &size)) return std::nullopt;
  }
  return size;
}

// Everything of the tensor but `name` and `type_name`, and where it lies.
absl::Status ReadEntry(std::string_view name, const Json& entry, std::span<const std::byte> data,
                       SourceTensor& tensor, Extent& extent) {
  const auto dtype = entry.is_object() ? entry.find("dtype") : entry.end();
  if (dtype == entry.end()) return TensorError(name, "has no dtype");
  if (!dtype->is_string()) return WrongMember(name, entry, "dtype", "a string");
  auto shape = UnsignedList(entry, "shape", kMaxDims);
  if (!shape) {
    return WrongMember(name, entry, "shape",
                       absl::StrCat("up to ", kMaxDims, " integers from 0 to ", INT64_MAX));
  }
  const auto offsets = UnsignedList(entry, "data_offsets", 2);
  if (!offsets || offsets->size() != 2) {
    return WrongMember(name, entry, "data_offsets",
                       absl::StrCat("two integers from 0 to ", INT64_MAX));
  }
  const auto [begin, end] = extent = std::pair((*offsets)[0], (*offsets)[1]);
  if (begin > end || static_cast<uint64_t>(end) > data.size()) {
    return TensorError(name, absl::StrCat("lies at [", begin, ", ", end, ") of data of ",
                                          data.size(), " bytes: the file is truncated or damaged"));
  }
  const ElementType* type = FindElementTypeOrNull(dtype->get_ref<const std::string&>());
  if (type != nullptr) {
    const std::optional<int64_t> size = TensorBytes(*shape, type->bytes);
    if (!size || *size != end - begin) {
      return TensorError(name,
                         absl::StrCat("has ", end - begin, " bytes, its shape and dtype ask for ",
                                      size ? absl::StrCat(*size) : "more than 2^63"));
    }
    tensor.dtype = type->dtype;
  }
  tensor.shape = *std::move(shape);
  if (tensor.dtype.has_value()) tensor.data = data.subspan(begin, end - begin);
  return absl::OkStatus();
}

struct Place {
  Extent extent;
  std::string_view name;
};

// The tensors, of whatever type, lie one behind the other and are all that the data holds, as the
// format's own library asks: bytes that belong to none could be another file to another reader.
absl::Status CheckCover(std::vector<Place> places, int64_t data_bytes) {
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.extent < b.extent; });
  int64_t covered = 0;
  std::string_view last;
  for (const auto& [extent, name] : places) {
    if (extent.first < covered) {
      return TensorError(last, absl::StrCat("overlaps ", QuotedName(name)));
    }
    if (extent.first > covered) {
      return TensorError(name,
                         absl::StrCat("begins at byte ", extent.first,
                                      " of the data, the tensors before it end at ", covered));
    }
    covered = extent.second;
    last = name;
  }
  if (covered == data_bytes) return absl::OkStatus();
  return Error(absl::StrCat("the tensors cover ", covered, " of ", data_bytes, " bytes of data"));
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return Error(absl::StrCat("a file of ", bytes.size(), " bytes has no header"));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  bytes = bytes.subspan(sizeof(header_bytes));
  if (header_bytes > bytes.size() || header_bytes > kMaxHeaderBytes) {
    return Error(absl::StrCat("a header of ", header_bytes, " bytes; ", bytes.size(),
                              " are there and at most ", kMaxHeaderBytes, " are read"));
  }
  const absl::StatusOr<Json> header = ParseJsonObject(
      {reinterpret_cast<const char*>(bytes.data()), header_bytes}, "safetensors header");
  if (!header.ok()) return header.status();
  const std::span<const std::byte> data = bytes.subspan(header_bytes);
  SafetensorsFile file;
  const auto keep = [&](const std::string& text) -> std::string_view {
    file.strings_.push_back(std::make_unique<const std::string>(text));
    return *file.strings_.back();
  };
  std::vector<Place> places;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    SourceTensor tensor;
    Extent extent;
    absl::Status status = ReadEntry(name, entry, data, tensor, extent);
    if (!status.ok()) return status;
    tensor.name = keep(name);
    tensor.type_name = keep(QuotedName(entry["dtype"].get_ref<const std::string&>()));
    places.push_back({extent, tensor.name});
    file.tensors_.push_back(std::move(tensor));
  }
  absl::Status status = CheckCover(std::move(places), static_cast<int64_t>(data.size()));
  if (!status.ok()) return status;
  return file;
}

}  // namespace refrain::engine
