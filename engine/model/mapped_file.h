#ifndef REFRAIN_ENGINE_MODEL_MAPPED_FILE_H_
#define REFRAIN_ENGINE_MODEL_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::engine {

// A regular file mapped read-only for as long as this lives. It does not interpret the bytes.
// Immutable after Open: any thread. Failure: NotFound, PermissionDenied, or InvalidArgument for
// what is not a regular file, with the path. The file must not be shortened meanwhile: reading past
// its new end raises SIGBUS, as with any mapping.
class MappedFile {
 public:
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;  // empty: nothing is mapped
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_MAPPED_FILE_H_
