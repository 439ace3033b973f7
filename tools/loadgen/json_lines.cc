#include "tools/loadgen/json_lines.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/loadgen/interruption.h"

namespace refrain::loadgen {

using Json = nlohmann::json;

namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr int kLookMs = 200;  // how long a signal may wait that came just before a wait

// One can be opened, and has no lines.
absl::Status CheckIsNoFolder(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory"));
}

absl::Status CannotOpen(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::ifstream> OpenToRead(const std::string& path) {
  if (absl::Status status = CheckIsNoFolder(path); !status.ok()) return status;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return CannotOpen(path);
  return stream;
}

JsonLines::JsonLines(std::string path, int fd)
    : path_(std::move(path)), fd_(fd), buffer_(kBufferBytes) {}
JsonLines::~JsonLines() { ::close(fd_); }

absl::StatusOr<std::unique_ptr<JsonLines>> JsonLines::Open(const std::string& path) {
  if (absl::Status status = CheckIsNoFolder(path); !status.ok()) return status;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CannotOpen(path);
  return std::unique_ptr<JsonLines>(new JsonLines(path, fd));
}

absl::StatusOr<bool> JsonLines::Next(Json* object) {
  std::string line;
  for (;;) {
    const absl::StatusOr<bool> read = ReadLine(&line);
    if (!read.ok() || !*read) return read;
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    *object = Json::parse(line, nullptr, false);
    if (!object->is_object()) return Error("is no JSON object");
    return true;
  }
}

absl::StatusOr<bool> JsonLines::ReadLine(std::string* line) {
  line->clear();
  for (;;) {
    if (unread_.empty()) {
      if (absl::Status status = Fill(); !status.ok()) return status;
      if (unread_.empty()) return !line->empty();
    }
    const size_t end = std::min(unread_.find('\n'), unread_.size());
    line->append(unread_.substr(0, end));
    const bool whole = end < unread_.size();
    unread_.remove_prefix(whole ? end + 1 : end);
    if (whole) return true;
  }
}

absl::Status JsonLines::Fill() {
  pollfd waits = {.fd = fd_, .events = POLLIN};
  while (::poll(&waits, 1, kLookMs) <= 0) {
    if (InterruptedBy().has_value()) return absl::CancelledError("interrupted");
  }
  const ssize_t bytes = ::read(fd_, buffer_.data(), buffer_.size());
  if (bytes < 0) {
    return absl::DataLossError(
        absl::StrCat(path_, ": cannot be read behind line ", line_, ": ", std::strerror(errno)));
  }
  unread_ = {buffer_.data(), static_cast<size_t>(bytes)};
  return absl::OkStatus();
}

absl::Status JsonLines::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, ": line ", line_, ": ", what));
}

}  // namespace refrain::loadgen
