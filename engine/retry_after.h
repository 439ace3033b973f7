#ifndef REFRAIN_ENGINE_RETRY_AFTER_H_
#define REFRAIN_ENGINE_RETRY_AFTER_H_

#include <optional>

#include "absl/status/status.h"

namespace refrain::engine {

// A refusal for lack of room tells its caller when to come back: whole seconds, at least 1, at most
// kMaxRetryAfterS, so that a client neither hammers nor gives up on a server that was slow for a
// while.
inline constexpr int kMaxRetryAfterS = 60;

// Attaches the hint to a status that is not OK; `seconds` is rounded up and bounded.
absl::Status WithRetryAfter(absl::Status status, double seconds);
std::optional<int> RetryAfterOf(const absl::Status& status);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_RETRY_AFTER_H_
