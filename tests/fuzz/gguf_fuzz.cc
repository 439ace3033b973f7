// Bytes as a GGUF file: all that opening a model does, then every byte of every weight. Bad files
// give a Status; reads outside of the input are the sanitizer's to find.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "engine/model/gguf_file.h"
#include "engine/model/gguf_model.h"

using refrain::engine::GgufFile;
using refrain::engine::TensorRole;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  (void)refrain::engine::ReadGgufTokenizer(*file).ok();
  const auto config = refrain::engine::ReadGgufConfig(*file);
  if (!config.ok()) return 0;
  if (!config->Validate().ok()) std::abort();
  const auto table = refrain::engine::BindGgufTensors(*file, *config);
  if (!table.ok()) return 0;
  unsigned sum = 0;
  for (int role = 0; role < refrain::engine::kNumTensorRoles; ++role) {
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
