#ifndef REFRAIN_TOOLS_LOADGEN_MOONCAKE_H_
#define REFRAIN_TOOLS_LOADGEN_MOONCAKE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/loadgen/synthetic_prompt.h"
#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

struct MooncakeOptions {
  std::string path;
  PromptForm form = PromptForm::kTokenIds;
  // Tokens of a block in the trace, and of the block sent for it: lengths (of recorded answers,
  // too) shrink by the same factor, what is shared stays shared.
  int32_t trace_block_tokens = 512;
  int32_t block_tokens = 512;
  int32_t output_tokens = 0;       // of every answer; 0: as recorded
  int32_t most_input_tokens = 0;   // longer prompts are left out; 0: none are
  int32_t most_output_tokens = 0;  // longer answers are cut to that; 0: none are
  TokenRange range;
  uint64_t seed = 1;
};

// A trace in Mooncake's format, one request a line: `timestamp` (ms), `input_length`,
// `output_length`, `hash_ids` (of its blocks, the last one possibly part-full). Each hash id
// becomes one block of tokens, always the same, so that two prompts share tokens exactly as far as
// their ids are equal. Requests of one time stamp (Mooncake's are rounded to 3 s) are spread evenly
// up to the next one. NOT_FOUND: no such file; INVALID_ARGUMENT: an option out of range.
absl::StatusOr<std::unique_ptr<Workload>> OpenMooncake(const MooncakeOptions& options);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_MOONCAKE_H_
