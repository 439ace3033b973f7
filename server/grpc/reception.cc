#include "server/grpc/reception.h"

#include <string_view>

#include "engine/retry_after.h"
#include "engine/text/chat_template.h"
#include "server/concat.h"
#include "server/request_id.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {
namespace {

std::string_view Metadata(const ::grpc::CallbackServerContext& context, const char* name) {
  const auto& all = context.client_metadata();
  const auto found = all.find(name);
  if (found == all.end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

absl::StatusOr<Caller> Reception::Enter(::grpc::CallbackServerContext* context, access::Area area,
                                        size_t message_bytes) {
  {
    MutexLock lock(mutex_);
    ++inside_;
  }
  Caller caller;
  const std::string_view client_id = Metadata(*context, "x-request-id");
  caller.request_id = IsAcceptableRequestId(client_id) ? std::string(client_id) : MakeRequestId();
  context->AddInitialMetadata("x-request-id", caller.request_id);
  absl::StatusOr<access::Principal> principal =
      gate_->Authenticate(area, Metadata(*context, "authorization"));
  if (!principal.ok()) return principal.status();
  caller.principal = *std::move(principal);
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (message_bytes > kQuickMessageBytes) {
    caller.message_bytes = std::make_shared<HeldBytes>(&messages_);
    if (!caller.message_bytes->GrowTo(message_bytes)) {
      return engine::WithRetryAfter(
          absl::UnavailableError(Concat("the server holds as many bytes of messages as it may: ",
                                        messages_.bytes(), " (limits.bodies_bytes)")),
          1);
    }
  }
  caller.engine = engine_;
  if (caller.engine == nullptr) {
    return WithCode(absl::UnavailableError("the model is still loading"), "model_loading");
  }
  return caller;
}

void Reception::Leave() {
  MutexLock lock(mutex_);
  --inside_;
  changed_.NotifyAll();
}

bool Reception::WaitUntilEmpty(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (inside_ > 0) {
    if (!changed_.WaitUntil(mutex_, deadline)) return inside_ == 0;
  }
  return true;
}

ModelLimits Reception::LimitsOf(const engine::Engine& engine) const {
  const engine::ModelInfo& model = engine.model();
  const engine::ChatTemplate* const chat_template = engine.chat_template();
  return {model.served_name,
          model.vocab_size,
          model.max_context_tokens,
          options_.max_choices,
          options_.max_beams,
          chat_template == nullptr ? engine::ToolFormat::kNone : chat_template->tool_format()};
}

}  // namespace refrain::server::rpc
