#include "engine/model/weight_source.h"

#include <filesystem>
#include <system_error>

#include "engine/model/gguf_model.h"
#include "engine/model/hf_folder.h"

namespace refrain::engine {

absl::StatusOr<std::unique_ptr<WeightSource>> WeightSource::Open(const std::string& path) {
  std::error_code ignored;  // what cannot be examined fails to open, with a reason, below
  if (std::filesystem::is_directory(path, ignored)) return OpenHuggingFaceFolder(path);
  return OpenGguf(path);
}

}  // namespace refrain::engine
