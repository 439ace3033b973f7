#include "engine/encoded_request.h"

#include "absl/status/status.h"

namespace refrain::engine {

const absl::Status& NoMemoryForPrompt() {
  static const auto& status = *new absl::Status(absl::ResourceExhaustedError(
      "the system refuses memory for the prompt (ulimit -v, vm.overcommit_memory)"));
  return status;
}

}  // namespace refrain::engine
