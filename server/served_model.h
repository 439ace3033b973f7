#ifndef REFRAIN_SERVER_SERVED_MODEL_H_
#define REFRAIN_SERVER_SERVED_MODEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "server/request_limits.h"

namespace refrain::server {

// What the front ends alike say of the model that is served. Pure; any thread.

// UNAVAILABLE, with a code of its own: there is no engine yet.
absl::Status StillLoading();

// Of one call; as many prompts as it may have. `max_choices` and `max_beams` are the
// configuration's.
ModelLimits LimitsOf(const engine::Engine& engine, int32_t max_choices, int32_t max_beams);

}  // namespace refrain::server

#endif  // REFRAIN_SERVER_SERVED_MODEL_H_
