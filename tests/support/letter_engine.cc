#include "tests/support/letter_engine.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_parts.h"
#include "engine/text/chat_template.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_chunk_mover.h"
#include "tests/support/fake_tokenizer.h"

namespace refrain::testing {

LetterEngine::LetterEngine() {
  auto memory = std::make_shared<FakeChunkMover>(kChunks, kChunkTokens);
  auto tokenizer = std::make_unique<FakeTokenizer>(LetterVocabulary());
  const auto vocab_size = static_cast<int32_t>(tokenizer->vocab_size());
  engine::EngineParts parts;
  parts.foundation = memory;
  parts.model.served_name = "letters";
  parts.model.max_context_tokens = kContextTokens;
  parts.model.vocab_size = vocab_size;
  parts.tokenizer = std::move(tokenizer);
  parts.chat_template = *engine::ChatTemplate::Create(
      "{% for message in messages %}{{ message.content }}{% endfor %}"
      "{% for tool in tools or [] %}{{ tool.function.name }}<tool_call>{% endfor %}",
      "", "");
  auto runner = std::make_unique<FakeModelRunner>(memory.get(), vocab_size, /*max_in_flight=*/2);
  // Answers are long enough to be in each other's way.
  runner->set_logits([vocab_size](const std::vector<FakeKvCell>& history) {
    std::vector<float> logits = HashLogits(history, vocab_size);
    logits.back() -= 3;  // of the end
    return logits;
  });
  runner_ = runner.get();
  parts.runner = std::move(runner);
  parts.cache = *kvcache::CacheManager::Create({kChunks, kChunkTokens, kSlots}, memory.get());
  engine_ = *engine::MakeEngine(std::move(parts),
                                {.max_sequences = kSlots, .step_token_budget = 2 * kChunkTokens});
}

std::string LetterEngine::Leftovers() {
  const auto is_idle = [this] {
    const engine::EngineStats stats = engine_->stats();
    return stats.running_sequences == 0 && stats.queued_requests == 0 &&
           stats.waiting_sequences == 0 && stats.held_sequences == 0 &&
           stats.deferred_sequences == 0;
  };
  std::string left;
  if (!Eventually(is_idle)) {
    const engine::EngineStats stats = engine_->stats();
    absl::StrAppend(&left, stats.running_sequences, " running, ", stats.queued_requests,
                    " queued, ", stats.waiting_sequences, " waiting, ", stats.held_sequences,
                    " held, ", stats.deferred_sequences, " deferred; ");
  }
  const auto pins = engine_->PinnedPrefixes();
  if (!pins.ok()) return absl::StrCat(left, "no pins: ", pins.status().message());
  for (const engine::PinnedPrefix& pin : pins->pins) {
    const absl::Status undone = engine_->UnpinPrefix(pin.id);
    if (!undone.ok()) absl::StrAppend(&left, "a pin stays: ", undone.message(), "; ");
  }
  const auto dropped = engine_->DropIdleCache();
  if (!dropped.ok()) absl::StrAppend(&left, "nothing dropped: ", dropped.status().message(), "; ");
  if (!Eventually([this] { return engine_->stats().kv_free_chunks == kChunks; })) {
    const engine::EngineStats stats = engine_->stats();
    absl::StrAppend(&left, stats.kv_used_chunks, " chunks used, ", stats.kv_cached_chunks,
                    " cached, of ", kChunks, "; ");
  }
  for (const std::string& error : runner_->errors()) absl::StrAppend(&left, error, "; ");
  if (!engine_->health().ok()) absl::StrAppend(&left, engine_->health().message());
  return left;
}

}  // namespace refrain::testing
