#ifndef REFRAIN_TOOLS_LOADGEN_WORKLOAD_CHOICE_H_
#define REFRAIN_TOOLS_LOADGEN_WORKLOAD_CHOICE_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "tools/loadgen/options.h"
#include "tools/loadgen/workload.h"

namespace refrain::loadgen {

// True when the workload's prompts are made up, so that they can be ids or text.
bool IsMadeUp(const Options& options);

// The workload that the options describe, its prompts in this form; nothing: each line of one's own
// in its own. NOT_FOUND: no such file; INVALID_ARGUMENT: an option out of range, or a line that its
// form cannot send (looked for unless the file is a pipe, which can be read once only).
absl::StatusOr<std::unique_ptr<Workload>> MakeWorkload(const Options& options,
                                                       std::optional<PromptForm> form);

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_WORKLOAD_CHOICE_H_
