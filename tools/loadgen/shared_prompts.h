#ifndef REFRAIN_TOOLS_LOADGEN_SHARED_PROMPTS_H_
#define REFRAIN_TOOLS_LOADGEN_SHARED_PROMPTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tools/loadgen/synthetic_prompt.h"
#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

struct SharedPromptsOptions {
  PromptForm form = PromptForm::kTokenIds;
  double shared_share = 1;       // of the requests that begin with a shared system prompt
  int32_t prompts = 1;           // different system prompts, equally likely
  int32_t shared_tokens = 1024;  // of a system prompt
  int32_t unique_tokens = 64;    // behind it, different in every request; also of every later turn
  int32_t output_tokens = 64;
  int32_t turns = 1;
  double think_s = 0;
  TokenRange range;
  uint64_t seed = 1;
};

// Requests that share system prompts: the workload of ChunkAttention's end-to-end test (section
// 4.2). A request that does not share has as many tokens of its own instead. Endless.
// INVALID_ARGUMENT names the option that is out of range.
absl::StatusOr<std::unique_ptr<Workload>> MakeSharedPrompts(const SharedPromptsOptions& options);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_SHARED_PROMPTS_H_
