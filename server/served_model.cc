#include "server/served_model.h"

#include "engine/text/chat_template.h"
#include "server/status_mapping.h"

namespace refrain::server {

absl::Status StillLoading() {
  return WithCode(absl::UnavailableError("the model is still loading"), "model_loading");
}

ModelLimits LimitsOf(const engine::Engine& engine, int32_t max_choices, int32_t max_beams) {
  const engine::ModelInfo& model = engine.model();
  ModelLimits limits;
  limits.served_name = model.served_name;
  limits.vocab_size = model.vocab_size;
  limits.max_context_tokens = model.max_context_tokens;
  limits.max_choices = max_choices;
  limits.max_beams = max_beams;
  limits.sampling = model.sampling;
  if (const engine::ChatTemplate* chat = engine.chat_template(); chat != nullptr) {
    limits.tools = chat->tool_format();
    limits.message_forms = chat->message_forms();
    limits.reasoning = chat->reasoning_format();
  }
  return limits;
}

}  // namespace refrain::server
