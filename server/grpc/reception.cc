#include "server/grpc/reception.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "engine/retry_after.h"
#include "server/generation_note.h"
#include "server/grpc/message_memory.h"
#include "server/grpc/metadata.h"
#include "server/grpc/status_mapping.h"
#include "server/request_id.h"
#include "server/served_model.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {
namespace {

// With the time that the engine still needs, if there is one.
absl::Status ShuttingDown(const engine::Engine* engine) {
  absl::Status status = absl::UnavailableError("the server is shutting down");
  if (engine == nullptr) return status;
  return engine::WithRetryAfter(std::move(status), engine->stats().until_idle_s);
}

// Before the message is read: what it takes then is there at once.
absl::Status HoldMemory(const Incoming& incoming, HeldBytes* held) {
  const size_t most = held->budget().bytes();
  return HoldBytes(MemoryOnceRead(*incoming.bytes, *incoming.message->GetDescriptor(), most), held);
}

}  // namespace

absl::StatusOr<Caller> Reception::Enter(::grpc::CallbackServerContext* context, access::Area area,
                                        const Incoming& incoming, CallRecord* record) {
  {
    MutexLock lock(mutex_);
    ++inside_;
  }
  Caller caller;
  caller.arrived = std::chrono::steady_clock::now();
  const std::string_view client_id = MetadataValue(context->client_metadata(), "x-request-id");
  caller.request_id = IsAcceptableRequestId(client_id) ? std::string(client_id) : MakeRequestId();
  context->AddInitialMetadata("x-request-id", caller.request_id);
  record->path = incoming.path;
  record->request_bytes = incoming.bytes->Length();
  record->request_id = caller.request_id;
  absl::StatusOr<access::Principal> principal =
      gate_->Authenticate(area, MetadataValue(context->client_metadata(), "authorization"));
  if (!principal.ok()) {
    record->principal = access::RefusedKeyName(principal.status());
    return principal.status();
  }
  caller.principal = *std::move(principal);
  record->principal = caller.principal.key_name;
  caller.engine = engine_;
  if (draining_) return ShuttingDown(caller.engine);
  caller.held_bytes = std::make_shared<HeldBytes>(messages_, caller.principal.key_name);
  if (record->request_bytes > kQuickMessageBytes) {
    const absl::Status held = HoldBytes(record->request_bytes, caller.held_bytes.get());
    if (!held.ok()) return held;
  }
  if (caller.engine == nullptr) {
    return StillLoading();
  }
  return caller;
}

absl::Status Reception::Read(const Incoming& incoming, Caller* caller, CallRecord* record) const {
  HeldBytes& held = *caller->held_bytes;
  if (record->request_bytes > kQuickMessageBytes) {
    const absl::Status more = HoldMemory(incoming, &held);
    if (!more.ok()) return more;
  }
  if (absl::Status status = ReadMessage(incoming); !status.ok()) return status;
  if (options_.log_prompts) {
    std::string body;
    if (google::protobuf::util::MessageToJsonString(*incoming.message, &body).ok()) {
      AppendBody(body, &record->details);
    }
  }
  const size_t bytes = incoming.message->SpaceUsedLong();
  if (bytes <= std::max(kQuickMessageBytes, held.bytes())) return absl::OkStatus();
  return HoldBytes(bytes, &held);
}

::grpc::Status Reception::NoteEnd(const ::grpc::CallbackServerContext& context,
                                  const absl::Status& status, bool left, CallRecord* record) {
  ::grpc::Status answer = GrpcStatusOf(status);
  // One that has not read either until it was cancelled is logged there (StallingCall).
  const bool is_cut = !left && UnreadAnswers::IsCut(status);
  if (answer.error_code() == ::grpc::StatusCode::INTERNAL || is_cut) {
    log_->Error("request failed",
                {{"request", record->request_id}, {"status", std::string(status.ToString())}});
  }
  if (left) {
    NoteLeft(context, record);
    return answer;
  }
  record->complete = true;
  // The numbers are the same.
  record->code = static_cast<absl::StatusCode>(answer.error_code());
  record->http_status = status.ok() ? 200 : ApiErrorFromStatus(status).http_status;
  return answer;
}

void Reception::NoteLeft(const ::grpc::CallbackServerContext& context, CallRecord* record) {
  // A client's own clock ends the call first, by about the time that the call took to get here.
  constexpr std::chrono::milliseconds kTransit{50};
  const bool late = context.deadline() <= std::chrono::system_clock::now() + kTransit;
  record->complete = false;
  record->code = late ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kCancelled;
  record->http_status = late ? 408 : 499;
}

void Reception::Leave(const CallRecord& record) {
  if (options_.on_call) options_.on_call(record);
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

void Reception::Watch(std::weak_ptr<StallingCall> call) {
  MutexLock lock(mutex_);
  watched_.push_back(std::move(call));
}

void Reception::EndStalled() {
  std::vector<std::shared_ptr<StallingCall>> calls;
  {
    MutexLock lock(mutex_);
    std::erase_if(watched_, [](const auto& call) { return call.expired(); });
    for (const auto& call : watched_) {
      if (auto alive = call.lock(); alive != nullptr) calls.push_back(std::move(alive));
    }
  }
  const auto now = std::chrono::steady_clock::now();
  for (const auto& call : calls) call->EndIfStalled(now, options_.write_timeout, log_);
}

ModelLimits Reception::LimitsOf(const engine::Engine& engine) const {
  ModelLimits limits = server::LimitsOf(engine, options_.max_choices, options_.max_beams);
  limits.max_conversation_bytes = messages_->bytes();
  return limits;
}

}  // namespace refrain::server::rpc
