#ifndef REFRAIN_TOOLS_LOADGEN_JSON_LINES_H_
#define REFRAIN_TOOLS_LOADGEN_JSON_LINES_H_

#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace refrain::loadgen {

// NOT_FOUND when the file cannot be opened, INVALID_ARGUMENT when it is a directory.
absl::StatusOr<std::ifstream> OpenToRead(const std::string& path);

// Reads a file of one JSON object a line, one at a time; empty lines are skipped. One thread.
class JsonLines {
 public:
  // As OpenToRead.
  static absl::StatusOr<std::unique_ptr<JsonLines>> Open(const std::string& path);

  // False at the end. INVALID_ARGUMENT when a line is no JSON object, DATA_LOSS when the file
  // cannot be read to its end.
  absl::StatusOr<bool> Next(nlohmann::json* object);

  // An error about the line read last: names file and line.
  absl::Status Error(absl::string_view what) const;

 private:
  JsonLines(std::string path, std::ifstream stream);

  const std::string path_;
  std::ifstream stream_;
  int64_t line_ = 0;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_JSON_LINES_H_
