#include "tests/support/costless_engine.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/model_runner.h"
#include "engine/text/chat_template.h"
#include "tests/support/fake_chunk_mover.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::testing {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr int32_t kContextTokens = 1 << 16;
constexpr int32_t kChunks = 1 << 14;

class CostlessRunner final : public engine::ModelRunner {
 public:
  explicit CostlessRunner(CostlessModel model) : model_(std::move(model)) {}

  int max_in_flight() const override { return 1; }

  engine::StepHandle Launch(const engine::StepBatch& batch) override {
    if (model_.before_step) model_.before_step(batch.logits.size());
    result_.rows.resize(batch.logits.size());
    for (size_t i = 0; i < batch.logits.size(); ++i) {
      const int32_t position = batch.positions[static_cast<size_t>(batch.logits[i].row)];
      result_.rows[i] = {.token = kvcache::TokenId{(position + 1) % kCostlessNumbers}};
    }
    return engine::StepHandle{++launched_};
  }

  absl::StatusOr<engine::StepResult> Collect(engine::StepHandle) override {
    if (model_.tokens_per_s > 0) {
      // From the step before on, unless there was a pause; then from now on.
      const auto step =
          std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(
              static_cast<double>(result_.rows.size()) / model_.tokens_per_s));
      const SteadyTime now = std::chrono::steady_clock::now();
      due_ = std::max(due_, now - step) + step;
      std::this_thread::sleep_until(due_);
    }
    return std::move(result_);
  }

 private:
  const CostlessModel model_;
  engine::StepResult result_;
  SteadyTime due_;
  uint64_t launched_ = 0;
};

std::vector<std::string> NumberVocabulary() {
  std::vector<std::string> pieces;
  for (int i = 0; i < kCostlessNumbers; ++i) pieces.push_back(" " + std::to_string(i));
  pieces.push_back("</s>");
  return pieces;
}

}  // namespace

absl::StatusOr<std::unique_ptr<engine::Engine>> MakeCostlessEngine(
    const CostlessModel& model, const engine::EngineOptions& options) {
  engine::EngineParts parts;
  const int32_t chunk_tokens = options.kv_cache.chunk_tokens;
  auto memory = std::make_shared<FakeChunkMover>(kChunks, chunk_tokens);
  auto tokenizer = std::make_unique<FakeTokenizer>(NumberVocabulary());
  parts.model.served_name = "costless";
  parts.model.description = "counts, at no cost";
  parts.model.max_context_tokens = kContextTokens;
  parts.model.vocab_size = static_cast<int32_t>(tokenizer->vocab_size());
  parts.tokenizer = std::move(tokenizer);
  auto chat_template = engine::ChatTemplate::Create(
      "{% for message in messages %}{{ message['content'] }}{% endfor %}", "", "");
  if (!chat_template.ok()) return chat_template.status();
  parts.chat_template = *std::move(chat_template);
  parts.runner = std::make_unique<CostlessRunner>(model);
  auto cache = kvcache::CacheManager::Create({.num_chunks = kChunks,
                                              .chunk_tokens = chunk_tokens,
                                              .max_slots = options.max_sequences,
                                              .prefix_cache = options.kv_cache.prefix_cache,
                                              .eviction = options.kv_cache.eviction},
                                             memory.get());
  if (!cache.ok()) return cache.status();
  parts.cache = *std::move(cache);
  parts.foundation = std::move(memory);
  return engine::MakeEngine(std::move(parts), options);
}

}  // namespace refrain::testing
