#ifndef REFRAIN_ENGINE_MODEL_GGUF_METADATA_H_
#define REFRAIN_ENGINE_MODEL_GGUF_METADATA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/gguf_file.h"

namespace refrain::engine {

// Typed reading of a GGUF file's metadata. An absent key reads as nullopt. A key of the wrong type
// or out of range reads as nullopt too and is kept as the first error, which the caller asks for
// once, at the end. For one thread; the file must outlive it.
class GgufMetadata {
 public:
  explicit GgufMetadata(const GgufFile& file) : file_(file) {}

  bool Has(std::string_view key) const { return file_.FindOrNull(key) != nullptr; }

  // Any integer type; the value must lie in [low, high]. An array of equal values counts as one:
  // some files state a number per layer.
  std::optional<int64_t> Integer(std::string_view key, int64_t low, int64_t high);
  std::optional<double> Real(std::string_view key);
  std::optional<bool> Boolean(std::string_view key);
  std::optional<std::string_view> String(std::string_view key);

  // Arrays of at most `max_count` elements.
  std::optional<std::vector<std::string>> Strings(std::string_view key, uint64_t max_count);
  std::optional<std::vector<float>> Floats(std::string_view key, uint64_t max_count);
  std::optional<std::vector<int64_t>> Integers(std::string_view key, uint64_t max_count);

  // As above, but absence is an error; 0 or "" then.
  int64_t RequiredInteger(std::string_view key, int64_t low, int64_t high);
  double RequiredReal(std::string_view key);

  // Keeps the first error.
  void Fail(absl::Status error);
  const absl::Status& status() const { return status_; }

 private:
  const GgufValue* FindScalar(std::string_view key);
  const GgufValue* FindArray(std::string_view key, uint64_t max_count);
  void FailType(std::string_view key, std::string_view expected);

  const GgufFile& file_;
  absl::Status status_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_GGUF_METADATA_H_
