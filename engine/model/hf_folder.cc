#include "engine/model/hf_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/hf_config.h"
#include "engine/model/hf_tokenizer.h"
#include "engine/model/mapped_file.h"
#include "engine/model/quoted_name.h"
#include "engine/model/safetensors_file.h"
#include "engine/model/strict_json.h"
#include "engine/model/tensor_table.h"

namespace refrain::engine {
namespace {

constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxJsonBytes = 64 << 20;

struct Shard {
  std::unique_ptr<MappedFile> mapping;
  SafetensorsFile file;
};

class HuggingFaceWeightSource final : public WeightSource {
 public:
  HuggingFaceWeightSource(std::string folder, std::vector<Shard> shards, ModelConfig config,
                          TensorTable table)
      : folder_(std::move(folder)),
        shards_(std::move(shards)),
        config_(std::move(config)),
        table_(std::move(table)) {
    size_t bytes = 0;
    for (const Shard& shard : shards_) bytes += shard.mapping->bytes().size();
    description_ = absl::StrCat("Hugging Face folder ", QuotedPath(folder_), ", architecture ",
                                config_.architecture, ", tensors: ", table_.DescribeTypes(), "; ",
                                shards_.size(), " files, ", bytes >> 20, " MiB");
  }

  const ModelConfig& config() const override { return config_; }
  const std::string& description() const override { return description_; }
  absl::StatusOr<WeightView> Get(TensorRole role, int layer) const override {
    return table_.Get(role, layer);
  }
  bool Has(TensorRole role, int layer) const override { return table_.Has(role, layer); }
  std::string NameOf(TensorRole role, int layer) const override {
    return TensorName(TensorNaming::kHuggingFace, role, layer);
  }
  absl::StatusOr<TokenizerSource> ReadTokenizer() const override {
    return ReadHuggingFaceTokenizer(folder_);
  }
  absl::StatusOr<SamplingDefaults> ReadSamplingDefaults() const override;

 private:
  std::string folder_;
  std::vector<Shard> shards_;
  ModelConfig config_;
  TensorTable table_;
  std::string description_;
};

absl::StatusOr<std::unique_ptr<MappedFile>> OpenJson(const std::string& path) {
  absl::StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(path);
  if (file.ok() && (*file)->bytes().size() > kMaxJsonBytes) {
    return absl::InvalidArgumentError(absl::StrCat(QuotedPath(path), " has ",
                                                   (*file)->bytes().size(), " bytes, at most ",
                                                   kMaxJsonBytes, " are read"));
  }
  return file;
}

absl::StatusOr<SamplingDefaults> HuggingFaceWeightSource::ReadSamplingDefaults() const {
  absl::StatusOr<std::unique_ptr<MappedFile>> file =
      OpenJson(absl::StrCat(folder_, "/generation_config.json"));
  if (absl::IsNotFound(file.status())) return SamplingDefaults();
  if (!file.ok()) return file.status();
  absl::StatusOr<SamplingDefaults> defaults = ParseGenerationConfig((*file)->text());
  if (!defaults.ok()) return WithPath(defaults.status(), folder_);
  return defaults;
}

absl::StatusOr<std::set<std::string>> ShardNames(const std::string& folder) {
  // Where both are, the index is what was left of an earlier saving: transformers takes the file.
  constexpr char kSingleFile[] = "model.safetensors";
  std::error_code error;
  if (std::filesystem::exists(absl::StrCat(folder, "/", kSingleFile), error)) {
    return std::set<std::string>{kSingleFile};
  }
  absl::StatusOr<std::unique_ptr<MappedFile>> index =
      OpenJson(absl::StrCat(folder, "/model.safetensors.index.json"));
  if (absl::IsNotFound(index.status())) return std::set<std::string>{kSingleFile};
  if (!index.ok()) return index.status();
  absl::StatusOr<std::set<std::string>> names = ParseShardIndex((*index)->text());
  if (!names.ok()) return WithPath(names.status(), (*index)->path());
  return names;
}

absl::StatusOr<Shard> OpenShard(const std::string& path) {
  absl::StatusOr<std::unique_ptr<MappedFile>> mapping = MappedFile::Open(path);
  if (!mapping.ok()) return mapping.status();
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Parse((*mapping)->bytes());
  if (!file.ok()) return WithPath(file.status(), path);
  return Shard{*std::move(mapping), *std::move(file)};
}

// Where a tied model has a head as well and it is not the embedding, some readers use it and some
// do not: the model says two things.
absl::Status CheckTiedHead(const ModelConfig& config, const std::vector<SourceTensor>& tensors) {
  if (!config.tied_embeddings) return absl::OkStatus();
  const auto find = [&](TensorRole role) {
    const std::string name = TensorName(TensorNaming::kHuggingFace, role, 0);
    return std::find_if(tensors.begin(), tensors.end(),
                        [&](const SourceTensor& tensor) { return tensor.name == name; });
  };
  const auto head = find(TensorRole::kOutput);
  const auto embedding = find(TensorRole::kTokenEmbedding);
  if (head == tensors.end() || embedding == tensors.end()) return absl::OkStatus();
  if (head->dtype == embedding->dtype && head->shape == embedding->shape &&
      std::equal(head->data.begin(), head->data.end(), embedding->data.begin(),
                 embedding->data.end())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("config.json: tie_word_embeddings is true, but ",
                                                 QuotedName(head->name), " is not equal to ",
                                                 QuotedName(embedding->name)));
}

bool IsPlainShardName(std::string_view name) {
  return name.size() > std::string_view(".safetensors").size() && name.size() <= 255 &&
         name.ends_with(".safetensors") && name[0] != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

absl::StatusOr<std::set<std::string>> ParseShardIndex(std::string_view index_json) {
  const absl::StatusOr<nlohmann::json> index = ParseJsonObject(index_json, "shard index");
  if (!index.ok()) return index.status();
  const auto map = index->find("weight_map");
  if (map == index->end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError("shard index: there is no weight_map");
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !IsPlainShardName(file.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shard index: tensor ", QuotedName(tensor),
          " is not in a plain *.safetensors file of the folder: ",
          file.is_string() ? QuotedName(file.get_ref<const std::string&>()) : "not a string"));
    }
    names.insert(file.get<std::string>());
  }
  if (names.size() > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard index: ", names.size(), " files, at most ", kMaxShards));
  }
  return names;
}

absl::StatusOr<std::unique_ptr<WeightSource>> OpenHuggingFaceFolder(const std::string& folder) {
  absl::StatusOr<std::unique_ptr<MappedFile>> config_file =
      OpenJson(absl::StrCat(folder, "/config.json"));
  if (!config_file.ok()) return config_file.status();
  absl::StatusOr<ModelConfig> config = ParseHuggingFaceConfig((*config_file)->text());
  if (!config.ok()) return WithPath(config.status(), folder);
  const absl::StatusOr<std::set<std::string>> names = ShardNames(folder);
  if (!names.ok()) return names.status();
  std::vector<Shard> shards;
  std::vector<SourceTensor> tensors;
  for (const std::string& name : *names) {
    absl::StatusOr<Shard> shard = OpenShard(absl::StrCat(folder, "/", name));
    if (!shard.ok()) return shard.status();
    const std::vector<SourceTensor>& found = shard->file.tensors();
    tensors.insert(tensors.end(), found.begin(), found.end());
    shards.push_back(*std::move(shard));
  }
  absl::StatusOr<TensorTable> table =
      TensorTable::Bind(*config, TensorNaming::kHuggingFace, tensors);
  if (!table.ok()) return WithPath(table.status(), folder);
  if (absl::Status status = CheckTiedHead(*config, tensors); !status.ok()) {
    return WithPath(status, folder);
  }
  return std::make_unique<HuggingFaceWeightSource>(folder, std::move(shards), *std::move(config),
                                                   *std::move(table));
}

}  // namespace refrain::engine
