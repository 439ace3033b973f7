#include "engine/model/weight_source.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/gguf_part_name.h"
#include "engine/model/gguf_source.h"
#include "engine/model/hf_folder.h"
#include "engine/model/quoted_name.h"

namespace refrain::engine {
namespace {

namespace fs = std::filesystem;

// The names of a folder's files that end so, in order.
std::vector<std::string> FilesOf(const std::string& folder, std::string_view ending) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.ends_with(ending)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

bool HasFile(const fs::path& folder, const char* name) {
  std::error_code error;
  return fs::exists(folder / name, error);
}

// What a folder that is no model has instead, for who gave the wrong path; "" where it only lacks
// some file.
std::string WhatFolderHas(const std::string& folder) {
  if (HasFile(folder, "adapter_config.json") && !HasFile(folder, "config.json")) {
    return "; the folder is a LoRA adapter, which is not supported";
  }
  if (!FilesOf(folder, ".safetensors").empty()) return "";
  std::vector<std::string> gguf = FilesOf(folder, ".gguf");
  // Parts of models that see pictures, and all but the first of models in several files.
  std::erase_if(gguf, [](const std::string& name) {
    const std::optional<GgufPartName> part = ParseGgufPartName(name);
    return name.starts_with("mmproj") || (part.has_value() && part->number > 0);
  });
  if (gguf.size() == 1) {
    return absl::StrCat("; the folder has ", QuotedPath(gguf.front()),
                        ": give the path of that file");
  }
  if (!gguf.empty()) {
    return absl::StrCat("; the folder has ", gguf.size(), " GGUF models: give the path of one");
  }
  for (const char* ending : {".bin", ".pth", ".pt"}) {
    const std::vector<std::string> weights = FilesOf(folder, ending);
    if (weights.empty()) continue;
    return absl::StrCat("; the folder has ", QuotedPath(weights.front()),
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
