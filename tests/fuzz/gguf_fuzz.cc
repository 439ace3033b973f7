// Bytes as a GGUF file: all that opening a model does, tokenizer and chat template included, then
// every byte of every weight and some angles. Bad files give a Status; reads outside of the input
// are the sanitizer's to find.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/gguf_file.h"
#include "engine/model/gguf_model.h"
#include "engine/model/rope_table.h"
#include "engine/text/chat_template.h"
#include "engine/text/create_tokenizer.h"

namespace refrain::engine {
namespace {

void MakeText(const GgufFile& file) {
  const auto spec = ReadGgufTokenizer(file);
  if (!spec.ok()) return;
  const auto tokenizer = CreateTokenizer(*spec);
  if (!tokenizer.ok()) return;
  constexpr std::string_view kSample = "the <|im_start|>theaa 12\u00e9\n <s>\xff\u2581  the the";
  for (const bool parse_special : {false, true}) {
    const auto ids = (*tokenizer)->Encode(kSample, {.parse_special = parse_special});
    if (!ids.ok()) continue;
    for (const kvcache::TokenId id : *ids) {
      if (kvcache::ToIndex(id) >= (*tokenizer)->vocab_size()) std::abort();
    }
  }
  (void)ChatTemplate::Create({.source = spec->chat_template,
                              .named = spec->named_chat_templates,
                              .tokens = spec->template_tokens})
      .ok();
}

void MakeAngles(const ModelConfig& config, const TensorTable& table) {
  std::vector<float> factors;
  if (const auto view = table.Get(TensorRole::kRopeFreqs, 0); view.ok()) {
    factors.resize(static_cast<size_t>(view->cols));
    if (view->bytes != factors.size() * sizeof(float)) std::abort();
    std::memcpy(factors.data(), view->data, view->bytes);
  }
  const RopeAngles angles = MakeRopeAngles(config.rope, factors, 0, 4);
  if (angles.cos.size() != static_cast<size_t>(config.rope.dim) / 2 * 4) std::abort();
}

int FuzzOne(const uint8_t* data, size_t size) {
  const auto file = GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  MakeText(*file);
  (void)ReadGgufSamplingDefaults(*file).ok();
  const auto config = ReadGgufConfig(*file);
  if (!config.ok()) return 0;
  if (!config->Validate().ok()) std::abort();
  const auto table = BindGgufTensors(*file, *config);
  if (!table.ok()) return 0;
  MakeAngles(*config, *table);
  unsigned sum = 0;
  for (int role = 0; role < kNumTensorRoles; ++role) {
    for (int layer = 0; layer < config->num_layers; ++layer) {
      const auto view = table->Get(static_cast<TensorRole>(role), layer);
      if (!view.ok()) continue;
      for (size_t i = 0; i < view->bytes; ++i) sum += static_cast<unsigned>(view->data[i]);
    }
  }
  volatile unsigned sink = sum;  // keeps the reads
  (void)sink;
  return 0;
}

}  // namespace
}  // namespace refrain::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return refrain::engine::FuzzOne(data, size);
}
