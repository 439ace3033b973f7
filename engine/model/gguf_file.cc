#include "engine/model/gguf_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/quoted_name.h"

namespace refrain::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they lie");

constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint64_t kMaxTensorDims = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kDefaultAlignment = 32;

struct TensorType {
  uint32_t number;
  std::string_view name;
  std::optional<kernels::DType> dtype;
};

using kernels::DType;

// What a file may name; those without a DType are known only well enough to be refused by name.
constexpr std::array<TensorType, 41> kTensorTypes = {{
    {0, "F32", DType::kF32},          {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},        {3, "Q4_1", DType::kQ4_1},
    {6, "Q5_0", DType::kQ5_0},        {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},        {9, "Q8_1", std::nullopt},
    {10, "Q2_K", std::nullopt},       {11, "Q3_K", std::nullopt},
    {12, "Q4_K", DType::kQ4_K},       {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},       {15, "Q8_K", std::nullopt},
    {16, "IQ2_XXS", std::nullopt},    {17, "IQ2_XS", std::nullopt},
    {18, "IQ3_XXS", std::nullopt},    {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", std::nullopt},     {21, "IQ3_S", std::nullopt},
    {22, "IQ2_S", std::nullopt},      {23, "IQ4_XS", std::nullopt},
    {24, "I8", std::nullopt},         {25, "I16", std::nullopt},
    {26, "I32", std::nullopt},        {27, "I64", std::nullopt},
    {28, "F64", std::nullopt},        {29, "IQ1_M", std::nullopt},
    {30, "BF16", DType::kBF16},       {31, "Q4_0_4_4", std::nullopt},
    {32, "Q4_0_4_8", std::nullopt},   {33, "Q4_0_8_8", std::nullopt},
    {34, "TQ1_0", std::nullopt},      {35, "TQ2_0", std::nullopt},
    {36, "IQ4_NL_4_4", std::nullopt}, {37, "IQ4_NL_4_8", std::nullopt},
    {38, "IQ4_NL_8_8", std::nullopt}, {39, "MXFP4", std::nullopt},
    {40, "NVFP4", std::nullopt},      {41, "Q1_0", std::nullopt},
    {42, "Q2_0", std::nullopt},
}};

const TensorType* FindTensorTypeOrNull(uint32_t number) {
  const auto* found = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                   [&](const TensorType& type) { return type.number == number; });
  return found != kTensorTypes.end() ? found : nullptr;
}

// Bytes of a fixed-size element; 0 for strings and arrays.
constexpr size_t ElementBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool Multiply(uint64_t a, uint64_t b, uint64_t& product) {
  return !__builtin_mul_overflow(a, b, &product);
}

}  // namespace

// Reads front to back; every read first asks whether the bytes are there.
class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> bytes) : bytes_(bytes) {}

  absl::StatusOr<GgufFile> Parse();

 private:
  struct TensorInfo {
    SourceTensor tensor;
    uint64_t offset;
  };

  uint64_t remaining() const { return bytes_.size() - position_; }

  absl::Status Error(const std::string& text) const {
    return absl::InvalidArgumentError(absl::StrCat("GGUF: ", text, ", at byte ", position_,
                                                   " of a file of ", bytes_.size(), " bytes"));
  }
  absl::Status Truncated(const std::string& thing) const {
    return Error(absl::StrCat("the file ends inside of ", thing));
  }

  template <typename T>
  bool Read(T& value) {
    if (remaining() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  bool ReadString(std::string_view& text);
  absl::Status ReadHeader(uint64_t& num_tensors, uint64_t& num_values);
  absl::Status ReadValue();
  absl::Status ReadPayload(std::string_view key, GgufValue& value);
  absl::Status ReadTensorInfo();
  absl::StatusOr<uint64_t> Alignment() const;
  absl::Status PlaceTensors();
  absl::Status RefuseOverlaps() const;

  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;  // <= bytes_.size()
  GgufFile file_;
  std::vector<TensorInfo> infos_;
  std::unordered_set<std::string_view, SeededHash> tensor_names_;
};

bool GgufParser::ReadString(std::string_view& text) {
  uint64_t length = 0;
  if (!Read(length) || length > remaining()) return false;
  text = {reinterpret_cast<const char*>(bytes_.data() + position_), static_cast<size_t>(length)};
  position_ += length;
  return true;
}

absl::Status GgufParser::ReadHeader(uint64_t& num_tensors, uint64_t& num_values) {
  std::array<char, 4> magic = {};
  if (!Read(magic) || std::string_view(magic.data(), 4) != "GGUF") {
    position_ = 0;
    return Error("the file does not begin with GGUF");
  }
  if (!Read(file_.version_)) return Truncated("the header");
  if ((file_.version_ & 0xffff) == 0 && file_.version_ != 0) {
    return absl::UnimplementedError("GGUF: the file is big-endian, only little-endian is read");
  }
  if (file_.version_ != 2 && file_.version_ != 3) {
    return absl::UnimplementedError(
        absl::StrCat("GGUF: version ", file_.version_, ", versions 2 and 3 are read"));
  }
  if (!Read(num_tensors) || !Read(num_values)) return Truncated("the header");
  // The least a tensor or value takes: an empty name, a type and a byte.
  const auto check = [&](uint64_t count, uint64_t least_bytes, const char* what) {
    if (count <= remaining() / least_bytes) return absl::OkStatus();
    return Error(absl::StrCat(count, " ", what, "; the ", remaining(),
                              " bytes behind the header hold at most ", remaining() / least_bytes));
  };
  absl::Status status = check(num_tensors, 24, "tensors");
  if (status.ok()) status = check(num_values, 13, "metadata values");
  return status;
}

absl::Status GgufParser::ReadPayload(std::string_view key, GgufValue& value) {
  const uint64_t begin = position_;
  if (value.type == GgufType::kString) {
    std::string_view ignored;
    for (uint64_t i = 0; i < value.count; ++i) {
      if (!ReadString(ignored)) {
        return Truncated(
            absl::StrCat("string ", i, " of ", value.count, " of key ", QuotedName(key)));
      }
    }
  } else {
    uint64_t size = 0;
    if (!Multiply(value.count, ElementBytes(value.type), size) || size > remaining()) {
      return Truncated(absl::StrCat("the ", value.count, " elements of key ", QuotedName(key)));
    }
    position_ += size;
  }
  value.payload = bytes_.subspan(begin, position_ - begin);
  return absl::OkStatus();
}

absl::Status GgufParser::ReadValue() {
  std::string_view key;
  if (!ReadString(key)) return Truncated("a metadata key");
  if (key.empty() || key.size() > kMaxNameBytes) {
    return Error(
        absl::StrCat("a metadata key of ", key.size(), " bytes, must be 1 to ", kMaxNameBytes));
  }
  uint32_t type = 0;
  GgufValue value;
  if (!Read(type)) return Truncated(absl::StrCat("the type of key ", QuotedName(key)));
  value.is_array = type == static_cast<uint32_t>(GgufType::kArray);
  if (value.is_array && (!Read(type) || !Read(value.count))) {
    return Truncated(absl::StrCat("the array of key ", QuotedName(key)));
  }
  if (value.is_array && type == static_cast<uint32_t>(GgufType::kArray)) {
    return absl::UnimplementedError(
        absl::StrCat("GGUF: key ", QuotedName(key), " is an array of arrays"));
  }
  if (type > static_cast<uint32_t>(GgufType::kFloat64)) {
    return Error(absl::StrCat("key ", QuotedName(key), " has the unknown type ", type));
  }
  value.type = static_cast<GgufType>(type);
  if (absl::Status status = ReadPayload(key, value); !status.ok()) return status;
  if (!file_.metadata_.emplace(key, value).second) {
    return Error(absl::StrCat("key ", QuotedName(key), " is there twice"));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadTensorInfo() {
  TensorInfo info;
  SourceTensor& tensor = info.tensor;
  if (!ReadString(tensor.name)) return Truncated("a tensor's name");
  const std::string name = QuotedName(tensor.name);
  if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes) {
    return Error(absl::StrCat("a tensor's name of ", tensor.name.size(), " bytes"));
  }
  uint32_t num_dims = 0;
  if (!Read(num_dims)) return Truncated(absl::StrCat("tensor ", name));
  if (num_dims < 1 || num_dims > kMaxTensorDims) {
    return Error(absl::StrCat("tensor ", name, " has ", num_dims, " dimensions, must be 1 to ",
                              kMaxTensorDims));
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    uint64_t extent = 0;
    if (!Read(extent)) return Truncated(absl::StrCat("tensor ", name));
    if (extent == 0 || !Multiply(elements, extent, elements) || elements > INT64_MAX) {
      return Error(absl::StrCat("tensor ", name, " has an impossible extent of ", extent));
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
  }
  uint32_t type_number = 0;
  if (!Read(type_number) || !Read(info.offset)) return Truncated(absl::StrCat("tensor ", name));
  if (const TensorType* type = FindTensorTypeOrNull(type_number); type != nullptr) {
    tensor.type_name = type->name;
    tensor.dtype = type->dtype;
  } else {
    tensor.type_name = file_.unknown_types_.emplace_back(absl::StrCat("number ", type_number));
  }
  if (!tensor_names_.insert(tensor.name).second) {
    return Error(absl::StrCat("tensor ", name, " is there twice"));
  }
  infos_.push_back(std::move(info));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> GgufParser::Alignment() const {
  const GgufValue* value = file_.FindOrNull("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  uint32_t alignment = 0;
  if (value->is_array || value->type != GgufType::kUint32) {
    return Error("key general.alignment is not a uint32");
  }
  std::memcpy(&alignment, value->payload.data(), sizeof(alignment));
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
    return Error(absl::StrCat("general.alignment is ", alignment, ", must be a power of two up to ",
                              kMaxAlignment));
  }
  return alignment;
}

// Offsets count from the first aligned byte after the tensor list.
absl::Status GgufParser::PlaceTensors() {
  const absl::StatusOr<uint64_t> alignment = Alignment();
  if (!alignment.ok()) return alignment.status();
  const uint64_t padded = (position_ + *alignment - 1) / *alignment * *alignment;
  if (padded > bytes_.size() && !infos_.empty()) return Truncated("the padding before the data");
  const std::span<const std::byte> data = bytes_.subspan(std::min(padded, bytes_.size()));
  for (TensorInfo& info : infos_) {
    SourceTensor& tensor = info.tensor;
    if (info.offset % *alignment != 0) {
      return Error(absl::StrCat("tensor ", QuotedName(tensor.name), " begins at offset ",
                                info.offset, ", not a multiple of the alignment ", *alignment));
    }
    if (!tensor.dtype.has_value()) continue;
    const int64_t cols = tensor.shape.back();
    const kernels::DTypeTraits& traits = kernels::Traits(*tensor.dtype);
    if (cols % traits.block_elements != 0) {
      return Error(absl::StrCat("tensor ", QuotedName(tensor.name), " has rows of ", cols,
                                " elements, not a multiple of the ", traits.block_elements,
                                " of a block of ", std::string(tensor.type_name)));
    }
    // Fits: the product of all extents is below 2^63, see ReadTensorInfo; the size may not.
    uint64_t blocks = static_cast<uint64_t>(cols) / traits.block_elements;
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) blocks *= tensor.shape[i];
    uint64_t size = 0;
    if (!Multiply(blocks, traits.block_bytes, size) || info.offset > data.size() ||
        size > data.size() - info.offset) {
      return Error(absl::StrCat("tensor ", QuotedName(tensor.name), " at offset ", info.offset,
                                " of the data does not fit into its ", data.size(),
                                " bytes: the file is truncated or damaged"));
    }
    tensor.data = data.subspan(info.offset, size);
  }
  return RefuseOverlaps();
}

absl::Status GgufParser::RefuseOverlaps() const {
  std::vector<const SourceTensor*> order;
  for (const TensorInfo& info : infos_) {
    if (info.tensor.dtype.has_value()) order.push_back(&info.tensor);
  }
  std::sort(order.begin(), order.end(), [](const SourceTensor* a, const SourceTensor* b) {
    return a->data.data() < b->data.data();
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->data.data() + order[i - 1]->data.size() > order[i]->data.data()) {
      return Error(absl::StrCat("tensors ", QuotedName(order[i - 1]->name), " and ",
                                QuotedName(order[i]->name), " overlap"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufFile> GgufParser::Parse() {
  uint64_t num_tensors = 0;
  uint64_t num_values = 0;
  if (absl::Status status = ReadHeader(num_tensors, num_values); !status.ok()) return status;
  for (uint64_t i = 0; i < num_values; ++i) {
    if (absl::Status status = ReadValue(); !status.ok()) return status;
  }
  for (uint64_t i = 0; i < num_tensors; ++i) {
    if (absl::Status status = ReadTensorInfo(); !status.ok()) return status;
  }
  if (absl::Status status = PlaceTensors(); !status.ok()) return status;
  file_.tensors_.reserve(infos_.size());
  for (TensorInfo& info : infos_) file_.tensors_.push_back(std::move(info.tensor));
  return std::move(file_);
}

absl::StatusOr<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) {
  return GgufParser(bytes).Parse();
}

void GgufFile::TakeTensors(GgufFile part) {
  tensors_.insert(tensors_.end(), part.tensors_.begin(), part.tensors_.end());
  unknown_types_.splice(unknown_types_.end(), part.unknown_types_);
}

const GgufValue* GgufFile::FindOrNull(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

}  // namespace refrain::engine
