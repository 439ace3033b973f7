#include "engine/model/gguf_source.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_metadata.h"
#include "engine/model/gguf_model.h"
#include "engine/model/gguf_part_name.h"
#include "engine/model/mapped_file.h"
#include "engine/model/quoted_name.h"
#include "engine/model/tensor_table.h"

namespace refrain::engine {
namespace {

constexpr int64_t kMaxParts = 4096;

struct Part {
  std::unique_ptr<MappedFile> mapping;
  GgufFile file;
};

// What a file says of the model that it is a part of.
struct Split {
  int64_t number = 0;  // from 0
  int64_t count = 1;
  std::optional<int64_t> num_tensors;  // of all parts together
};

class GgufWeightSource final : public WeightSource {
 public:
  GgufWeightSource(std::vector<std::unique_ptr<MappedFile>> mappings, GgufFile file,
                   ModelConfig config, TensorTable table)
      : mappings_(std::move(mappings)),
        file_(std::move(file)),
        config_(std::move(config)),
        table_(std::move(table)) {
    GgufMetadata metadata(file_);
    size_t bytes = 0;
    for (const auto& mapping : mappings_) bytes += mapping->bytes().size();
    const std::string files =
        mappings_.size() > 1 ? absl::StrCat(mappings_.size(), " files, ") : std::string();
    description_ =
        absl::StrCat("GGUF v", file_.version(), " ",
                     QuotedName(metadata.String("general.name").value_or("unnamed")),
                     ", architecture ", config_.architecture, ", tensors: ", table_.DescribeTypes(),
                     "; ", files, bytes >> 20, " MiB");
  }

  const ModelConfig& config() const override { return config_; }
  const std::string& description() const override { return description_; }
  absl::StatusOr<WeightView> Get(TensorRole role, int layer) const override {
    return table_.Get(role, layer);
  }
  bool Has(TensorRole role, int layer) const override { return table_.Has(role, layer); }
  std::string NameOf(TensorRole role, int layer) const override {
    return TensorName(TensorNaming::kGguf, role, layer);
  }
  absl::StatusOr<TokenizerSource> ReadTokenizer() const override {
    absl::StatusOr<TokenizerSpec> spec = ReadGgufTokenizer(file_);
    if (!spec.ok()) return spec.status();
    return TokenizerSource{*std::move(spec), ""};
  }
  absl::StatusOr<SamplingDefaults> ReadSamplingDefaults() const override {
    return ReadGgufSamplingDefaults(file_);
  }

 private:
  std::vector<std::unique_ptr<MappedFile>> mappings_;
  GgufFile file_;
  ModelConfig config_;
  TensorTable table_;
  std::string description_;
};

absl::StatusOr<Split> ReadSplit(const GgufFile& file) {
  GgufMetadata metadata(file);
  Split split;
  // 0 in files that were merged again.
  split.count = metadata.Integer("split.count", 0, kMaxParts).value_or(1);
  split.number = metadata.Integer("split.no", 0, std::numeric_limits<int64_t>::max()).value_or(0);
  split.num_tensors =
      metadata.Integer("split.tensors.count", 0, std::numeric_limits<int64_t>::max());
  if (!metadata.status().ok()) return metadata.status();
  if (split.number >= std::max<int64_t>(1, split.count)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GGUF: split.no is ", split.number, ", must be less than split.count, ", split.count));
  }
  return split;
}

absl::StatusOr<Part> OpenPart(const std::string& path) {
  absl::StatusOr<std::unique_ptr<MappedFile>> mapping = MappedFile::Open(path);
  if (!mapping.ok()) return mapping.status();
  absl::StatusOr<GgufFile> file = GgufFile::Parse((*mapping)->bytes());
  if (!file.ok()) return WithPath(file.status(), path);
  return Part{*std::move(mapping), *std::move(file)};
}

// Adds part `name` to the model.
absl::Status AddPart(const GgufPartName& name, std::vector<Part>& parts) {
  const std::string path = ToString(name);
  absl::StatusOr<Part> part = OpenPart(path);
  if (absl::IsNotFound(part.status())) {
    return absl::NotFoundError(
        absl::StrCat(part.status().message(), "; the model is in ", name.count, " parts"));
  }
  if (!part.ok()) return part.status();
  const absl::StatusOr<Split> split = ReadSplit(part->file);
  if (!split.ok()) return WithPath(split.status(), path);
  if (split->number != name.number || split->count != name.count) {
    return absl::InvalidArgumentError(absl::StrCat(
        QuotedPath(path), ": GGUF: split.no is ", split->number, " and split.count ", split->count,
        ", must be ", name.number, " and ", name.count, " in a file of this name"));
  }
  parts.push_back(*std::move(part));
  return absl::OkStatus();
}

// All files of the model that the one at `path` belongs to, in their order.
absl::StatusOr<std::vector<Part>> OpenParts(const std::string& path) {
  absl::StatusOr<Part> given = OpenPart(path);
  if (!given.ok()) return given.status();
  const absl::StatusOr<Split> split = ReadSplit(given->file);
  if (!split.ok()) return WithPath(split.status(), path);
  std::vector<Part> parts;
  if (split->count <= 1) {
    parts.push_back(*std::move(given));
    return parts;
  }
  std::optional<GgufPartName> name = ParseGgufPartName(path);
  if (!name.has_value() || name->number != split->number || name->count != split->count) {
    const GgufPartName wanted{"", static_cast<uint32_t>(split->number),
                              static_cast<uint32_t>(split->count)};
    return absl::InvalidArgumentError(absl::StrCat(
        QuotedPath(path), ": GGUF: the file is one of ", split->count,
        " parts of a model (split.no ", split->number, "); for the others to be found its name ",
        "must end with ", ToString(wanted)));
  }
  for (name->number = 0; name->number < name->count; ++name->number) {
    if (name->number == split->number) continue;
    if (absl::Status status = AddPart(*name, parts); !status.ok()) return status;
  }
  parts.insert(parts.begin() + split->number, *std::move(given));
  return parts;
}

// The first part with the tensors of all.
absl::StatusOr<GgufFile> Join(std::vector<Part>& parts) {
  GgufFile whole = std::move(parts.front().file);
  for (size_t i = 1; i < parts.size(); ++i) whole.TakeTensors(std::move(parts[i].file));
  const absl::StatusOr<Split> split = ReadSplit(whole);
  if (!split.ok()) return split.status();
  const auto found = static_cast<int64_t>(whole.tensors().size());
  if (parts.size() > 1 && split->num_tensors.value_or(found) != found) {
    return absl::InvalidArgumentError(absl::StrCat("GGUF: split.tensors.count is ",
                                                   *split->num_tensors, ", the ", parts.size(),
                                                   " parts have ", found, " tensors"));
  }
  return whole;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenGguf(const std::string& path) {
  absl::StatusOr<std::vector<Part>> parts = OpenParts(path);
  if (!parts.ok()) return parts.status();
  absl::StatusOr<GgufFile> file = Join(*parts);
  if (!file.ok()) return WithPath(file.status(), path);
  absl::StatusOr<ModelConfig> config = ReadGgufConfig(*file);
  if (!config.ok()) return WithPath(config.status(), path);
  absl::StatusOr<TensorTable> table = BindGgufTensors(*file, *config);
  if (!table.ok()) return WithPath(table.status(), path);
  std::vector<std::unique_ptr<MappedFile>> mappings;
  for (Part& part : *parts) mappings.push_back(std::move(part.mapping));
  return std::make_unique<GgufWeightSource>(std::move(mappings), *std::move(file),
                                            *std::move(config), *std::move(table));
}

}  // namespace refrain::engine
