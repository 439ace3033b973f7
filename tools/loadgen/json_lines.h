#ifndef REFRAIN_TOOLS_LOADGEN_JSON_LINES_H_
#define REFRAIN_TOOLS_LOADGEN_JSON_LINES_H_

#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

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
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;

  // False at the end. INVALID_ARGUMENT when a line is no JSON object, DATA_LOSS when the file
  // cannot be read to its end, CANCELLED when a signal (InterruptedBy) ends the wait for what comes
  // through a pipe.
  absl::StatusOr<bool> Next(nlohmann::json* object);

  // An error about the line read last: names file and line.
  absl::Status Error(absl::string_view what) const;

 private:
  JsonLines(std::string path, int fd);
  // False at the end.
  absl::StatusOr<bool> ReadLine(std::string* line);
  absl::Status Fill();

  const std::string path_;
  const int fd_;
  std::vector<char> buffer_;
  std::string_view unread_;  // part of it; empty behind Fill: the file has ended
  int64_t line_ = 0;
};

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_JSON_LINES_H_
