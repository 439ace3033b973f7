#include "tests/support/gguf_writer.h"

namespace refrain::testing {
namespace {

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string& out, std::string_view text) {
  Append<uint64_t>(out, text.size());
  out.append(text);
}

template <typename T>
std::string ArrayPayload(uint32_t type, const std::vector<T>& values) {
  std::string payload;
  Append<uint32_t>(payload, type);
  Append<uint64_t>(payload, values.size());
  for (const T& value : values) Append<T>(payload, value);
  return payload;
}

}  // namespace

void GgufWriter::AddKey(std::string_view key, uint32_t type) {
  ++num_values_;
  AppendText(values_, key);
  Append<uint32_t>(values_, type);
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  AddKey(key, kTypeString);
  AppendText(values_, value);
}

void GgufWriter::AddUint16(std::string_view key, uint16_t value) {
  AddKey(key, 2);
  Append(values_, value);
}

void GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  AddKey(key, kTypeUint32);
  Append(values_, value);
}

void GgufWriter::AddFloat32(std::string_view key, float value) {
  AddKey(key, kTypeFloat32);
  Append(values_, value);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  AddKey(key, 7);
  Append<uint8_t>(values_, value ? 1 : 0);
}

void GgufWriter::AddStrings(std::string_view key, const std::vector<std::string>& values) {
  std::string payload;
  Append<uint32_t>(payload, kTypeString);
  Append<uint64_t>(payload, values.size());
  for (const std::string& value : values) AppendText(payload, value);
  AddRaw(key, kTypeArray, payload);
}

void GgufWriter::AddInt32s(std::string_view key, const std::vector<int32_t>& values) {
  AddRaw(key, kTypeArray, ArrayPayload(kTypeInt32, values));
}

void GgufWriter::AddFloat32s(std::string_view key, const std::vector<float>& values) {
  AddRaw(key, kTypeArray, ArrayPayload(kTypeFloat32, values));
}

void GgufWriter::AddRaw(std::string_view key, uint32_t type, std::string_view payload) {
  AddKey(key, type);
  values_.append(payload);
}

void GgufWriter::AddValues(uint64_t count, std::string_view bytes) {
  num_values_ += count;
  values_.append(bytes);
}

void GgufWriter::AddTensor(std::string_view name, uint32_t type,
                           const std::vector<uint64_t>& extents, std::string_view bytes) {
  AddTensorAt(name, type, extents, data_.size());
  data_.append(bytes);
  data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_);
}

void GgufWriter::AddTensorAt(std::string_view name, uint32_t type,
                             const std::vector<uint64_t>& extents, uint64_t offset) {
  ++num_tensors_;
  AppendText(tensors_, name);
  Append<uint32_t>(tensors_, extents.size());
  for (const uint64_t extent : extents) Append<uint64_t>(tensors_, extent);
  Append<uint32_t>(tensors_, type);
  Append<uint64_t>(tensors_, offset);
}

std::string GgufWriter::Build() {
  std::string file = "GGUF";
  Append<uint32_t>(file, version_);
  Append<uint64_t>(file, num_tensors_);
  Append<uint64_t>(file, num_values_);
  file += values_;
  file += tensors_;
  header_bytes_ = file.size();
  file.resize((file.size() + alignment_ - 1) / alignment_ * alignment_);
  return file + data_;
}

}  // namespace refrain::testing
