#ifndef REFRAIN_SERVER_HOLD_BYTES_H_
#define REFRAIN_SERVER_HOLD_BYTES_H_

#include <cstddef>

#include "absl/status/status.h"
#include "server/byte_budget.h"

namespace refrain::server {

// What is no longer than this counts in no budget: one that is used up must not refuse it.
inline constexpr size_t kUncountedBytes = 16 * 1024;

// `held` grows to `bytes` of limits.bodies_bytes. UNAVAILABLE, with when to come back, where so
// many are not left, and INVALID_ARGUMENT where they are more than all; it then holds what it held.
absl::Status HoldBytes(size_t bytes, HeldBytes* held);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_HOLD_BYTES_H_
