#ifndef REFRAIN_TOOLS_LOADGEN_INTERRUPTION_H_
#define REFRAIN_TOOLS_LOADGEN_INTERRUPTION_H_

#include <optional>

namespace refrain::loadgen {

// From now on the first SIGINT or SIGTERM ends nothing: InterruptedBy tells of it, so that what was
// measured can still be reported. The second one ends the process as if this had not been called.
void CatchInterruption();

// The signal that came; nothing: none did.
std::optional<int> InterruptedBy();

}  // namespace refrain::loadgen

#endif  // REFRAIN_TOOLS_LOADGEN_INTERRUPTION_H_
