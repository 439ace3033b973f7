#ifndef REFRAIN_TESTS_SUPPORT_MODEL_HARNESS_H_
#define REFRAIN_TESTS_SUPPORT_MODEL_HARNESS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/kv_storage.h"
#include "engine/model/llama.h"
#include "engine/model/weight_source.h"
#include "engine/options.h"
#include "engine/text/tokenizer.h"
#include "kernels/backend.h"

namespace refrain::testing {

struct HarnessOptions {
  engine::BackendOptions backend;
  std::string kv_dtype = "auto";
  bool reproducible = false;
  int32_t max_context_tokens = 2304;
  int32_t step_tokens = 512;  // rows of one Forward
};

// A model without an engine around it: one sequence, its own chunks, logits wherever wanted. What
// golden values are compared with.
class ModelHarness {
 public:
  static absl::StatusOr<std::unique_ptr<ModelHarness>> Load(const std::string& path,
                                                            const HarnessOptions& options);
  // On a back end of the caller's instead of options.backend's.
  static absl::StatusOr<std::unique_ptr<ModelHarness>> LoadOn(
      std::unique_ptr<kernels::Backend> backend, const std::string& path,
      const HarnessOptions& options);

  // Called with the logits [vocab_size] after each wanted token, in order.
  using OnLogits = std::function<void(int32_t index, std::span<const float> logits)>;

  // Forgets the sequence and computes `ids` from position 0; `on_logits` sees those of the tokens
  // with index >= first_wanted.
  void Start(std::span<const int32_t> ids, int32_t first_wanted, const OnLogits& on_logits);
  // The same with a position for each token.
  void StartAt(std::span<const int32_t> ids, std::span<const int32_t> positions,
               int32_t first_wanted, const OnLogits& on_logits);
  // Appends to the sequence.
  void Append(std::span<const int32_t> ids, int32_t first_wanted, const OnLogits& on_logits);
  // Forgets all but the first `length` tokens of the sequence.
  void Rewind(int32_t length) { length_ = std::min(length, length_); }

  engine::LlamaModel& model() { return *model_; }
  kernels::Backend& backend() { return *backend_; }
  const engine::WeightSource& source() const { return *source_; }

 private:
  void Step(std::span<const int32_t> ids, int32_t first_wanted, const OnLogits& on_logits);

  HarnessOptions options_;
  std::unique_ptr<engine::WeightSource> source_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<engine::LlamaModel> model_;
  std::unique_ptr<engine::KvStorage> storage_;
  std::vector<int32_t> positions_;  // of every token of the pool
  int32_t length_ = 0;
  kernels::DeviceBuffer logits_;    // [step_tokens, vocab_size]
  std::vector<float> read_logits_;  // the wanted ones of a step
  uint64_t plans_ = 0;
};

// Where tools/setup keeps SmolLM2-135M-Instruct.Q4_1.gguf; "" when it is not there.
std::string SmolLm2Path();

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_SUPPORT_MODEL_HARNESS_H_
