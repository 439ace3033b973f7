#include "tests/support/safetensors_writer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace refrain::testing {

void SafetensorsWriter::AddTensor(std::string_view name, std::string_view dtype,
                                  const std::vector<int64_t>& shape, std::string_view bytes) {
  const size_t begin = data_.size();
  data_.append(bytes);
  AddEntry(name, absl::StrCat(R"({"dtype":")", std::string(dtype), R"(","shape":[)",
                              absl::StrJoin(shape, ","), R"(],"data_offsets":[)", begin, ",",
                              data_.size(), "]}"));
}

void SafetensorsWriter::AddEntry(std::string_view name, std::string_view entry) {
  absl::StrAppend(&header_, header_.empty() ? "{" : ",", "\"", std::string(name),
                  "\":", std::string(entry));
}

std::string SafetensorsWriter::Build() const {
  return SafetensorsFileOf(header_.empty() ? "{}" : header_ + "}", data_);
}

std::string SafetensorsFileOf(std::string_view header, std::string_view data) {
  const uint64_t size = header.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof(size));
  file.append(header);
  return file.append(data);
}

}  // namespace refrain::testing
