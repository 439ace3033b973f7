// The first byte chooses: a safetensors file whose every tensor is then read, a config.json with
// its token ids, or a shard index. Bad input gives a Status.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "engine/model/hf_config.h"
#include "engine/model/hf_folder.h"
#include "engine/model/safetensors_file.h"

namespace {

void ReadSafetensors(std::span<const uint8_t> input) {
  const auto file = refrain::engine::SafetensorsFile::Parse(std::as_bytes(input));
  if (!file.ok()) return;
  unsigned sum = 0;
  for (const refrain::engine::SourceTensor& tensor : file->tensors()) {
    for (const std::byte byte : tensor.data) sum += static_cast<unsigned>(byte);
  }
  volatile unsigned sink = sum;  // keeps the reads
  (void)sink;
}

void ReadConfig(std::string_view text) {
  const auto config = refrain::engine::ParseHuggingFaceConfig(text);
  if (config.ok() && !config->Validate().ok()) std::abort();
  (void)refrain::engine::ParseTokenIds(text, "eos_token_id").ok();
}

void ReadIndex(std::string_view text) {
  const auto names = refrain::engine::ParseShardIndex(text);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (name.find('/') != std::string::npos || name.starts_with('.')) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> input(data + 1, size - 1);
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  switch (data[0] % 3) {
    case 0:
      ReadSafetensors(input);
      break;
    case 1:
      ReadConfig(text);
      break;
    default:
      ReadIndex(text);
  }
  return 0;
}
