#ifndef REFRAIN_ENGINE_TENANT_END_H_
#define REFRAIN_ENGINE_TENANT_END_H_

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace refrain::engine {

// On its way to the engine thread: what came of the tenants before, and has not begun to run, is
// to end, also what is still being encoded.
struct TenantEnd {
  std::unordered_set<std::string> tenants;
  uint64_t before = 0;  // of the requests with lower numbers
  absl::Status reason;  // which they end with
  // Called once, and quick: how many have ended at once, or why none will.
  std::function<void(absl::StatusOr<int32_t> ended)> done;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TENANT_END_H_
