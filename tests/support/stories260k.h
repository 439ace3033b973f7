#ifndef REFRAIN_TESTS_SUPPORT_STORIES260K_H_
#define REFRAIN_TESTS_SUPPORT_STORIES260K_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace refrain::testing {

// A llama2.c checkpoint (`stories260K.bin`: seven int32 sizes, then float32 tensors, q and k rows
// in adjacent pairs) and its tokenizer (`tok512.bin`) as the bytes of a GGUF file, F32. So the same
// model can be opened as GGUF and as the Hugging Face folder beside it. Pure.
absl::StatusOr<std::string> ConvertLlama2cToGguf(std::string_view checkpoint,
                                                 std::string_view tokenizer);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_STORIES260K_H_
