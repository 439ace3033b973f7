#include "engine/model/hf_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/hf_config.h"
#include "engine/model/mapped_file.h"
#include "engine/model/quoted_name.h"
#include "engine/text/tokenizer_json.h"

namespace refrain::engine {
namespace {

using kvcache::TokenId;

// The largest tokenizer.json in use has 35 MB, the largest tokenizer.model 4, the others at
// most 1.
constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;
constexpr size_t kMaxFileBytes = size_t{16} << 20;

// The folder's text files; keeps the first error. An absent file reads as empty; one that is empty
// is what a broken copy leaves, but for a template, which may say nothing.
class FolderTexts {
 public:
  explicit FolderTexts(const std::string& folder) : folder_(folder) {}

  std::string_view Read(const std::string& name, size_t max_bytes = kMaxFileBytes) {
    const std::string path = absl::StrCat(folder_, "/", name);
    absl::StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(path);
    if (!file.ok()) {
      if (!absl::IsNotFound(file.status())) status_.Update(file.status());
      return {};
    }
    if ((*file)->bytes().size() > max_bytes) {
      status_.Update(absl::InvalidArgumentError(
          absl::StrCat(QuotedPath(path), " has ", (*file)->bytes().size(), " bytes, at most ",
                       max_bytes, " are read")));
      return {};
    }
    if ((*file)->bytes().empty() && !name.ends_with(".jinja")) {
      status_.Update(absl::InvalidArgumentError(absl::StrCat(QuotedPath(path), " is empty")));
      return {};
    }
    files_.push_back(*std::move(file));
    return files_.back()->text();
  }
  // additional_chat_templates/NAME.jinja, by NAME. Only tool_use is used, and read; of the others a
  // message may tell the names.
  std::map<std::string, std::string_view> ReadMoreTemplates() {
    constexpr size_t kMostNames = 64;
    constexpr char kFolder[] = "additional_chat_templates";
    std::map<std::string, std::string_view> templates;
    const std::string_view tool_use = Read(absl::StrCat(kFolder, "/tool_use.jinja"));
    if (!tool_use.empty()) templates["tool_use"] = tool_use;
    std::error_code error;
    std::filesystem::directory_iterator entry(absl::StrCat(folder_, "/", kFolder), error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const std::filesystem::path& path = entry->path();
      if (templates.size() == kMostNames) break;
      if (path.extension() != ".jinja" || path.stem() == "tool_use") continue;
      templates[path.stem().string()] = "";  // what is in it is not used
    }
    return templates;
  }
  const absl::Status& status() const { return status_; }

 private:
  const std::string& folder_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  absl::Status status_;
};

// Ids that end a generation may stand in generation_config.json, config.json or both.
absl::Status AddSpecialIds(std::string_view json, std::string_view file, TokenizerSpec& spec) {
  if (json.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<TokenId>> bos = ParseTokenIds(json, file, "bos_token_id");
  if (!bos.ok()) return bos.status();
  const absl::StatusOr<std::vector<TokenId>> eos = ParseTokenIds(json, file, "eos_token_id");
  if (!eos.ok()) return eos.status();
  if (!spec.bos && !bos->empty()) spec.bos = bos->front();
  if (!spec.eos && !eos->empty()) spec.eos = eos->front();
  for (const TokenId id : *eos) {
    std::vector<TokenId>& known = spec.end_of_generation;
    if (id != spec.eos && std::find(known.begin(), known.end(), id) == known.end()) {
      known.push_back(id);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSource> ReadHuggingFaceTokenizer(const std::string& folder) {
  FolderTexts texts(folder);
  HuggingFaceTokenizerFiles files;
  files.tokenizer_json = texts.Read("tokenizer.json", kMaxTokenizerBytes);
  files.tokenizer_config_json = texts.Read("tokenizer_config.json");
  files.special_tokens_map_json = texts.Read("special_tokens_map.json");
  files.added_tokens_json = texts.Read("added_tokens.json");
  files.generation_config_json = texts.Read("generation_config.json");
  files.chat_template_jinja = texts.Read("chat_template.jinja");
  files.additional_chat_templates = texts.ReadMoreTemplates();
  const std::string_view config = texts.Read("config.json");
  const std::string_view piece_model = files.tokenizer_json.empty()
                                           ? texts.Read("tokenizer.model", kMaxTokenizerBytes)
                                           : std::string_view();
  if (!texts.status().ok()) return texts.status();
  if (files.tokenizer_json.empty() && piece_model.empty()) {
    return absl::NotFoundError(
        absl::StrCat(QuotedPath(folder), " has neither a tokenizer.json nor a tokenizer.model"));
  }
  absl::StatusOr<TokenizerSpec> spec =
      piece_model.empty() ? ParseTokenizerJson(files) : ParseSentencePieceSidecars(files);
  if (!spec.ok()) return spec.status();
  TokenizerSource source{.spec = *std::move(spec), .sentencepiece_model = std::string(piece_model)};
  absl::Status status =
      AddSpecialIds(files.generation_config_json, "generation_config.json", source.spec);
  if (status.ok()) status = AddSpecialIds(config, "config.json", source.spec);
  if (!status.ok()) return status;
  MarkEndTokens(&source.spec);
  return source;
}

}  // namespace refrain::engine
