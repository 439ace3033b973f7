#ifndef REFRAIN_ENGINE_STEP_BUILDER_H_
#define REFRAIN_ENGINE_STEP_BUILDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/model_runner.h"
#include "engine/running_request.h"
#include "engine/step_batch.h"
#include "kvcache/cache_manager.h"

namespace refrain::engine {

// What has to be remembered of a step until it is collected.
struct LaunchedStep {
  struct Work {
    std::shared_ptr<SequenceState> sequence;
    int32_t first_token;
    int32_t num_tokens;
    bool replayed;  // cached tokens, computed again for their rows only
  };
  struct Logits {
    std::shared_ptr<SequenceState> sequence;
    std::optional<int32_t> prompt_index;  // absent: the sequence's next token
  };
  StepHandle handle{};
  std::vector<Work> work;
  std::vector<Logits> logits;  // one per row of StepResult

  int32_t num_tokens() const {
    int32_t tokens = 0;
    for (const Work& one : work) tokens += one.num_tokens;
    return tokens;
  }
};

// Fills a StepBatch from sequences whose chunks are reserved: takes their places in the cache,
// marks their samples as pending. One object serves all steps, so that arrays are reused. Engine
// thread only; cannot fail.
class StepBuilder {
 public:
  // `window_tokens`: the model's sliding window, 0 = none.
  StepBuilder(kvcache::CacheManager* cache, int32_t window_tokens)
      : cache_(cache), window_tokens_(window_tokens) {}

  void Begin();
  void Add(const std::shared_ptr<SequenceState>& sequence, int32_t num_tokens);
  bool empty() const { return step_.work.empty(); }
  int32_t rows() const { return static_cast<int32_t>(batch_.tokens.size()); }
  // Completes the batch with the cache's plan; it is valid until the next Begin.
  const StepBatch& Finish();
  LaunchedStep TakeStep() { return std::move(step_); }

 private:
  void AddPlaces(const SequenceState& sequence, bool replayed);
  void AddLogits(const std::shared_ptr<SequenceState>& sequence, int32_t index, int32_t row);

  kvcache::CacheManager* cache_;
  int32_t window_tokens_;
  StepBatch batch_;
  LaunchedStep step_;
  std::vector<int32_t> new_positions_;
  std::vector<kvcache::TokenPlace> places_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_STEP_BUILDER_H_
