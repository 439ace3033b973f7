#ifndef REFRAIN_ENGINE_MODEL_GGUF_PART_NAME_H_
#define REFRAIN_ENGINE_MODEL_GGUF_PART_NAME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace refrain::engine {

// How the files of a model in several parts are called: STEM-00002-of-00003.gguf, counted from 1,
// as llama.cpp's gguf-split and converter write them. Pure; any thread.
struct GgufPartName {
  std::string stem;     // with the folder, if there was one
  uint32_t number = 0;  // from 0
  uint32_t count = 1;
};

// Nothing for a path that is not called so; numbers are not held against each other.
std::optional<GgufPartName> ParseGgufPartName(std::string_view path);

std::string ToString(const GgufPartName& name);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_MODEL_GGUF_PART_NAME_H_
