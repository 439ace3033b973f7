#ifndef REFRAIN_TESTS_SUPPORT_COSTLESS_ENGINE_H_
#define REFRAIN_TESTS_SUPPORT_COSTLESS_ENGINE_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/options.h"

namespace refrain::testing {

struct CostlessModel {
  // A step takes as long as its tokens do at this rate; 0: no time at all.
  double tokens_per_s = 0;
  // Called on the engine's thread before a step that gives so many tokens; may be empty.
  std::function<void(size_t tokens)> before_step;
};

inline constexpr int kCostlessNumbers = 1000;

// The real engine (threads, scheduler, prefix tree, stop criteria, streams) over a model that costs
// nothing: what is measured with it is ours. Every answer counts: the token at position p of its
// sequence is the text " N" with N = p modulo kCostlessNumbers, so that a reader sees at once
// whether one is missing, comes twice or stands in the wrong place. Prompts are encoded one token
// per byte. Failure: as MakeEngine.
absl::StatusOr<std::unique_ptr<engine::Engine>> MakeCostlessEngine(
    const CostlessModel& model, const engine::EngineOptions& options);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_COSTLESS_ENGINE_H_
