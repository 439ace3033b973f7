#include "engine/context_length.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

constexpr char kPayload[] = "refrain/context_length";

}  // namespace

absl::Status ContextLengthError(std::string_view prompt_tokens, int32_t max_context_tokens,
                                std::string_view remark) {
  // OpenAI's words, which client libraries look for.
  absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("This model's maximum context length is ", max_context_tokens,
                   " tokens. However, the prompt has ", std::string(prompt_tokens), " tokens",
                   std::string(remark), "."));
  status.SetPayload(kPayload, absl::Cord());
  return status;
}

bool IsContextLengthError(const absl::Status& status) {
  return status.GetPayload(kPayload).has_value();
}

}  // namespace refrain::engine
