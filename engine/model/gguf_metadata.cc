#include "engine/model/gguf_metadata.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/quoted_name.h"

namespace refrain::engine {
namespace {

template <typename T>
T Element(const GgufValue& value, uint64_t index) {
  T element;
  std::memcpy(&element, value.payload.data() + index * sizeof(T), sizeof(T));
  return element;
}

// nullopt: not an integer type, or above INT64_MAX.
std::optional<int64_t> IntegerElement(const GgufValue& value, uint64_t index) {
  switch (value.type) {
    case GgufType::kUint8:
      return Element<uint8_t>(value, index);
    case GgufType::kInt8:
      return Element<int8_t>(value, index);
    case GgufType::kUint16:
      return Element<uint16_t>(value, index);
    case GgufType::kInt16:
      return Element<int16_t>(value, index);
    case GgufType::kUint32:
      return Element<uint32_t>(value, index);
    case GgufType::kInt32:
      return Element<int32_t>(value, index);
    case GgufType::kInt64:
      return Element<int64_t>(value, index);
    case GgufType::kUint64: {
      const auto element = Element<uint64_t>(value, index);
      if (element > INT64_MAX) return std::nullopt;
      return static_cast<int64_t>(element);
    }
    default:
      return std::nullopt;
  }
}

// Takes the next string off the front. Parse has checked the lengths, but the file may have been
// written to since: then what is left counts as one string.
std::string_view TakeString(std::span<const std::byte>& payload) {
  uint64_t length = 0;
  if (payload.size() < sizeof(length)) return "";
  std::memcpy(&length, payload.data(), sizeof(length));
  length = std::min<uint64_t>(length, payload.size() - sizeof(length));
  const std::string_view text(reinterpret_cast<const char*>(payload.data()) + sizeof(length),
                              length);
  payload = payload.subspan(sizeof(length) + length);
  return text;
}

}  // namespace

void GgufMetadata::Fail(absl::Status error) { status_.Update(std::move(error)); }

void GgufMetadata::FailType(std::string_view key, std::string_view expected) {
  Fail(absl::InvalidArgumentError(
      absl::StrCat("GGUF key ", QuotedName(key), " is not ", std::string(expected))));
}

const GgufValue* GgufMetadata::FindScalar(std::string_view key) {
  const GgufValue* value = file_.FindOrNull(key);
  if (value == nullptr || !value->is_array) return value;
  FailType(key, "a single value");
  return nullptr;
}

const GgufValue* GgufMetadata::FindArray(std::string_view key, uint64_t max_count) {
  const GgufValue* value = file_.FindOrNull(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array) {
    FailType(key, "an array");
    return nullptr;
  }
  if (value->count > max_count) {
    Fail(
        absl::InvalidArgumentError(absl::StrCat("GGUF key ", QuotedName(key), " has ", value->count,
                                                " elements, at most ", max_count, " are read")));
    return nullptr;
  }
  return value;
}

std::optional<int64_t> GgufMetadata::Integer(std::string_view key, int64_t low, int64_t high) {
  const GgufValue* value = file_.FindOrNull(key);
  if (value == nullptr) return std::nullopt;
  if (value->count == 0) {
    FailType(key, "a number");
    return std::nullopt;
  }
  const std::optional<int64_t> number = IntegerElement(*value, 0);
  if (!number) {
    FailType(key, "an integer");
    return std::nullopt;
  }
  for (uint64_t i = 1; i < value->count; ++i) {
    if (IntegerElement(*value, i) != number) {
      Fail(absl::UnimplementedError(
          absl::StrCat("GGUF key ", QuotedName(key), " differs from layer to layer")));
      return std::nullopt;
    }
  }
  if (*number < low || *number > high) {
    Fail(absl::InvalidArgumentError(absl::StrCat("GGUF key ", QuotedName(key), " is ", *number,
                                                 ", must be ", low, " to ", high)));
    return std::nullopt;
  }
  return number;
}

std::optional<double> GgufMetadata::Real(std::string_view key) {
  const GgufValue* value = FindScalar(key);
  if (value == nullptr) return std::nullopt;
  std::optional<double> number;
  if (value->type == GgufType::kFloat32) {
    number = Element<float>(*value, 0);
  } else if (value->type == GgufType::kFloat64) {
    number = Element<double>(*value, 0);
  } else if (const std::optional<int64_t> integer = IntegerElement(*value, 0)) {
    number = static_cast<double>(*integer);
  }
  if (!number || !std::isfinite(*number)) {
    FailType(key, "a finite number");
    return std::nullopt;
  }
  return number;
}

std::optional<bool> GgufMetadata::Boolean(std::string_view key) {
  const GgufValue* value = FindScalar(key);
  if (value == nullptr) return std::nullopt;
  const bool typed = value->type == GgufType::kBool;
  const uint8_t byte = typed ? Element<uint8_t>(*value, 0) : 2;
  if (byte > 1) {
    FailType(key, "a boolean");
    return std::nullopt;
  }
  return byte == 1;
}

std::optional<std::string_view> GgufMetadata::String(std::string_view key) {
  const GgufValue* value = FindScalar(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) {
    FailType(key, "a string");
    return std::nullopt;
  }
  std::span<const std::byte> payload = value->payload;
  return TakeString(payload);
}

std::optional<std::vector<std::string>> GgufMetadata::Strings(std::string_view key,
                                                              uint64_t max_count) {
  const GgufValue* value = FindArray(key, max_count);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) {
    FailType(key, "an array of strings");
    return std::nullopt;
  }
  std::vector<std::string> strings;
  strings.reserve(value->count);
  std::span<const std::byte> payload = value->payload;
  for (uint64_t i = 0; i < value->count; ++i) strings.emplace_back(TakeString(payload));
  return strings;
}

std::optional<std::vector<float>> GgufMetadata::Floats(std::string_view key, uint64_t max_count) {
  const GgufValue* value = FindArray(key, max_count);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kFloat32) {
    FailType(key, "an array of float32");
    return std::nullopt;
  }
  std::vector<float> floats(value->count);
  if (!floats.empty()) std::memcpy(floats.data(), value->payload.data(), value->payload.size());
  return floats;
}

std::optional<std::vector<int64_t>> GgufMetadata::Integers(std::string_view key,
                                                           uint64_t max_count) {
  const GgufValue* value = FindArray(key, max_count);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> integers;
  integers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number = IntegerElement(*value, i);
    if (!number) {
      FailType(key, "an array of integers");
      return std::nullopt;
    }
    integers.push_back(*number);
  }
  return integers;
}

int64_t GgufMetadata::RequiredInteger(std::string_view key, int64_t low, int64_t high) {
  if (!Has(key)) {
    Fail(absl::InvalidArgumentError(absl::StrCat("GGUF key ", QuotedName(key), " is missing")));
  }
  return Integer(key, low, high).value_or(0);
}

double GgufMetadata::RequiredReal(std::string_view key) {
  if (!Has(key)) {
    Fail(absl::InvalidArgumentError(absl::StrCat("GGUF key ", QuotedName(key), " is missing")));
  }
  return Real(key).value_or(0.0);
}

}  // namespace refrain::engine
