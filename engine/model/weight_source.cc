#include "engine/model/weight_source.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/gguf_model.h"
#include "engine/model/hf_folder.h"
#include "engine/model/quoted_name.h"

namespace refrain::engine {
namespace {

namespace fs = std::filesystem;

// The first name, in order, of a folder's files that end so; "" where there is none.
std::string FirstFile(const std::string& folder, std::string_view ending) {
  std::string first;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.ends_with(ending) && (first.empty() || name < first)) first = std::move(name);
  }
  return first;
}

bool HasFile(const fs::path& folder, const char* name) {
  std::error_code error;
  return fs::exists(folder / name, error);
}

// What a folder that is no model has instead, for who gave the wrong path.
std::string WhatFolderHas(const std::string& folder) {
  if (HasFile(folder, "adapter_config.json")) {
    return "; the folder is a LoRA adapter, which is not supported";
  }
  if (const std::string gguf = FirstFile(folder, ".gguf"); !gguf.empty()) {
    return absl::StrCat("; the folder has ", QuotedPath(gguf), ": give the path of that file");
  }
  for (const char* ending : {".bin", ".pth", ".pt"}) {
    const std::string weights = FirstFile(folder, ending);
    if (weights.empty()) continue;
    return absl::StrCat("; the folder has ", QuotedPath(weights),
                        ": of such folders only weights in *.safetensors are read");
  }
  return "";
}

absl::Status WithHint(const absl::Status& status, const std::string& hint) {
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()), hint));
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> WeightSource::Open(const std::string& path) {
  std::error_code ignored;  // what cannot be examined fails to open, with a reason, below
  if (fs::is_directory(path, ignored)) {
    absl::StatusOr<std::unique_ptr<WeightSource>> source = OpenHuggingFaceFolder(path);
    if (absl::IsNotFound(source.status())) return WithHint(source.status(), WhatFolderHas(path));
    return source;
  }
  absl::StatusOr<std::unique_ptr<WeightSource>> source = OpenGguf(path);
  const fs::path folder = fs::path(path).parent_path();
  if (!source.ok() && !absl::IsNotFound(source.status()) && !path.ends_with(".gguf") &&
      HasFile(folder.empty() ? "." : folder, "config.json")) {
    return WithHint(source.status(),
                    "; it lies in a Hugging Face folder: give the path of that folder");
  }
  return source;
}

}  // namespace refrain::engine
