#include "server/grpc/inference_service.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "server/concat.h"
#include "server/detokenize.h"
#include "server/grpc/generation_call.h"
#include "server/grpc/request_reader.h"
#include "server/grpc/stream_end_call.h"
#include "server/grpc/streaming_method.h"
#include "server/grpc/unary_call.h"
#include "server/request_limits.h"
#include "server/status_mapping.h"

namespace refrain::server::rpc {
namespace {

using ::grpc::ByteBuffer;
using ::grpc::CallbackServerContext;
using ::grpc::ServerUnaryReactor;

// Of an id, in the message and as it is sent.
constexpr size_t kBytesPerId = sizeof(int32_t) + 3;

absl::Status WriteTokens(const Caller& caller, const std::vector<engine::TokenId>& ids,
                         v1::TokenizeResponse* out) {
  if (const size_t bytes = ids.size() * kBytesPerId; bytes > kUncountedBytes) {
    HeldBytes& held = *caller.held_bytes;
    const absl::Status status = HoldBytes(held.bytes() + bytes, &held);
    if (!status.ok()) return status;
  }
  out->mutable_token_ids()->Reserve(static_cast<int>(ids.size()));
  for (const engine::TokenId id : ids) out->add_token_ids(static_cast<int32_t>(id));
  out->set_max_context_tokens(caller.engine->model().max_context_tokens);
  return absl::OkStatus();
}

absl::Status Detokenize(const Caller& caller, const v1::DetokenizeRequest& in,
                        v1::DetokenizeResponse* out) {
  if (const auto count = static_cast<size_t>(in.token_ids_size()); count > kMaxDetokenizedIds) {
    return InvalidField("token_ids", Concat("'token_ids' has ", count, " ids; at most ",
                                            kMaxDetokenizedIds, " are accepted"));
  }
  const int32_t vocab_size = caller.engine->model().vocab_size;
  std::vector<engine::TokenId> ids;
  ids.reserve(static_cast<size_t>(in.token_ids_size()));
  for (const int32_t id : in.token_ids()) {
    if (id < 0 || id >= vocab_size) {
      return InvalidField(
          Concat("token_ids[", ids.size(), "]"),
          Concat("'token_ids' holds ", id, "; token ids go from 0 to ", vocab_size - 1));
    }
    ids.push_back(engine::TokenId{id});
  }
  absl::StatusOr<std::string> text =
      server::Detokenize(caller.engine->tokenizer(), ids, caller.held_bytes.get());
  if (!text.ok()) return text.status();
  out->set_text(*std::move(text));
  return absl::OkStatus();
}

using RawUnaryMethods =
    v1::Inference::WithRawCallbackMethod_Tokenize<v1::Inference::WithRawCallbackMethod_Detokenize<
        v1::Inference::WithRawCallbackMethod_Models<v1::Inference::Service>>>;

class InferenceService final : public RawUnaryMethods {
 public:
  explicit InferenceService(Reception* reception) : reception_(reception) {
    Stream<v1::GenerateRequest>("Generate", "/refrain.v1.Inference/Generate", &ReadGenerate);
    Stream<v1::ChatRequest>("Chat", "/refrain.v1.Inference/Chat", &ReadChat);
  }

  ServerUnaryReactor* Tokenize(CallbackServerContext* context, const ByteBuffer* request,
                               ByteBuffer* response) override {
    const auto in = std::make_shared<v1::TokenizeRequest>();
    const auto out = std::make_shared<v1::TokenizeResponse>();
    return AnswerAtStreamEnd(
        {context, {"/refrain.v1.Inference/Tokenize", request, in}, response, out}, reception_,
        access::Area::kInference,
        {.queue = &reception_->slow(),
         .submit = [this, in](const Caller& caller, access::Ticket* ticket)
             -> absl::StatusOr<std::shared_ptr<engine::TokenStream>> {
           if (absl::Status status = Admit(caller, ticket); !status.ok()) return status;
           const bool special = !in->has_add_special_tokens() || in->add_special_tokens();
           return caller.engine->Tokenize({in->text(), special}, caller.principal.key_name,
                                          std::nullopt,  // the call's deadline cancels it
                                          caller.arrived);
         },
         .answer =
             [out](const Caller& caller, const engine::StreamBatch& last) {
               return WriteTokens(caller, last.text_ids, out.get());
             }});
  }

  ServerUnaryReactor* Detokenize(CallbackServerContext* context, const ByteBuffer* request,
                                 ByteBuffer* response) override {
    return Answer<v1::DetokenizeRequest, v1::DetokenizeResponse>(
        {context, request, response}, "/refrain.v1.Inference/Detokenize",
        [this](const Caller& caller, const v1::DetokenizeRequest& in,
               v1::DetokenizeResponse* out) -> absl::Status {
          access::Ticket ticket;
          if (absl::Status status = Admit(caller, &ticket); !status.ok()) return status;
          return rpc::Detokenize(caller, in, out);
        });
  }

  ServerUnaryReactor* Models(CallbackServerContext* context, const ByteBuffer* request,
                             ByteBuffer* response) override {
    return Answer<v1::ModelsRequest, v1::ModelsResponse>(
        {context, request, response}, "/refrain.v1.Inference/Models",
        [](const Caller& caller, const v1::ModelsRequest&, v1::ModelsResponse* out) {
          const engine::ModelInfo& info = caller.engine->model();
          v1::Model* const model = out->add_models();
          model->set_id(info.served_name);
          model->set_created_unix_s(info.created_unix_s);
          model->set_max_context_tokens(info.max_context_tokens);
          model->set_vocab_size(info.vocab_size);
          return absl::OkStatus();
        });
  }

 private:
  // `method` is answered with a generation, as `read` reads what it asks for.
  template <class Request>
  void Stream(const char* method, std::string_view path,
              absl::StatusOr<GenerationRequest> (*read)(const Request&, const ModelLimits&)) {
    const google::protobuf::ServiceDescriptor* const service =
        Request::descriptor()->file()->FindServiceByName("Inference");
    MarkMethodRawCallback(
        service->FindMethodByName(method)->index(),
        new StreamingMethod([this, path, read](CallbackServerContext* context,
                                               const ByteBuffer* bytes,
                                               grpc_completion_queue* queue) {
          const auto in = std::make_shared<Request>();
          return GenerationCall::Start(
              context, queue, reception_, {path, bytes, in},
              [in, read](const ModelLimits& limits) { return read(*in, limits); });
        }));
  }

  absl::Status Admit(const Caller& caller, access::Ticket* ticket) {
    absl::StatusOr<access::Ticket> admitted = reception_->gate().Admit(caller.principal);
    if (!admitted.ok()) return admitted.status();
    *ticket = *std::move(admitted);
    return absl::OkStatus();
  }

  template <class Request, class Response>
  ServerUnaryReactor* Answer(
      const RawUnary& raw, std::string_view path,
      std::function<absl::Status(const Caller&, const Request&, Response*)> work) {
    return AnswerOnQueue<Request, Response>(raw, path, reception_, access::Area::kInference,
                                            &reception_->slow(), std::move(work));
  }

  Reception* const reception_;
};

}  // namespace

std::unique_ptr<::grpc::Service> MakeInferenceService(Reception* reception) {
  return std::make_unique<InferenceService>(reception);
}

}  // namespace refrain::server::rpc
