// The files of a Hugging Face folder. The first byte chooses: a safetensors file whose every tensor
// is then read, a config.json with its token ids, a shard index, a config.json with the safetensors
// file whose tensors it binds, or the files of a tokenizer with its chat template. Several files
// are parted by zero bytes. Bad input gives a Status.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/model/hf_config.h"
#include "engine/model/hf_folder.h"
#include "engine/model/rope_table.h"
#include "engine/model/safetensors_file.h"
#include "engine/model/sampling_defaults.h"
#include "engine/model/tensor_table.h"
#include "engine/text/chat_template.h"
#include "engine/text/create_tokenizer.h"
#include "engine/text/tokenizer_json.h"

namespace refrain::engine {
namespace {

void ReadAll(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<unsigned>(byte);
  volatile unsigned sink = sum;  // keeps the reads
  (void)sink;
}

void ReadSafetensors(std::string_view input) {
  const auto file = SafetensorsFile::Parse(std::as_bytes(std::span(input)));
  if (!file.ok()) return;
  for (const SourceTensor& tensor : file->tensors()) ReadAll(tensor.data);
}

void ReadConfig(std::string_view text) {
  const auto config = ParseHuggingFaceConfig(text);
  if (config.ok()) {
    if (!config->Validate().ok()) std::abort();
    (void)MakeRopeAngles(config->rope, {}, 0, 4);
  }
  (void)ParseTokenIds(text, "config.json", "eos_token_id").ok();
  (void)ParseGenerationConfig(text).ok();
}

void ReadIndex(std::string_view text) {
  const auto names = ParseShardIndex(text);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (name.find('/') != std::string::npos || name.starts_with('.')) std::abort();
  }
}

// What stands before the next zero byte, or all; takes it and the byte off.
std::string_view NextFile(std::string_view* rest) {
  const size_t end = std::min(rest->find('\0'), rest->size());
  const std::string_view file = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return file;
}

void BindModel(std::string_view input) {
  const auto config = ParseHuggingFaceConfig(NextFile(&input));
  if (!config.ok()) return;
  const auto file = SafetensorsFile::Parse(std::as_bytes(std::span(input)));
  if (!file.ok()) return;
  const auto table = TensorTable::Bind(*config, TensorNaming::kHuggingFace, file->tensors());
  if (!table.ok()) return;
  for (int role = 0; role < kNumTensorRoles; ++role) {
    for (int layer = 0; layer < config->num_layers; ++layer) {
      const auto view = table->Get(static_cast<TensorRole>(role), layer);
      if (!view.ok()) continue;
      const auto row_bytes = kernels::RowBytes(view->dtype, view->cols);
      if (!row_bytes.has_value() || view->bytes != *row_bytes * view->rows) std::abort();
      ReadAll({view->data, view->bytes});
    }
  }
}

void MakeText(std::string_view input) {
  HuggingFaceTokenizerFiles files;
  files.tokenizer_json = NextFile(&input);
  files.tokenizer_config_json = NextFile(&input);
  files.special_tokens_map_json = NextFile(&input);
  files.generation_config_json = NextFile(&input);
  files.chat_template_jinja = NextFile(&input);
  const auto spec = ParseTokenizerJson(files);
  if (!spec.ok()) return;
  const auto tokenizer = CreateTokenizer(*spec);
  if (!tokenizer.ok()) return;
  constexpr std::string_view kSample = "the <|im_start|>theaa 12\u00e9\n <s>\xff";
  const auto ids = (*tokenizer)->Encode(kSample, {.parse_special = true});
  if (ids.ok()) {
    for (const kvcache::TokenId id : *ids) {
      if (kvcache::ToIndex(id) >= (*tokenizer)->vocab_size()) std::abort();
    }
  }
  (void)ChatTemplate::Create({.source = spec->chat_template,
                              .named = spec->named_chat_templates,
                              .tokens = spec->template_tokens})
      .ok();
}

int FuzzOne(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      ReadSafetensors(input);
      break;
    case 1:
      ReadConfig(input);
      break;
    case 2:
      ReadIndex(input);
      break;
    case 3:
      BindModel(input);
      break;
    default:
      MakeText(input);
  }
  return 0;
}

}  // namespace
}  // namespace refrain::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return refrain::engine::FuzzOne(data, size);
}
