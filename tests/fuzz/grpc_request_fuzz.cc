// Messages of the gRPC API: the bytes as each request of the protocol. Whatever comes out of the
// decoding, the reader makes a request of it that the engine takes, or an error that can be shown
// to the client, whatever the model's chat template can do.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/request_checks.h"
#include "proto/admin.pb.h"
#include "proto/inference.pb.h"
#include "server/grpc/request_reader.h"
#include "server/grpc/status_mapping.h"

namespace {

using refrain::engine::MessageForm;
using refrain::engine::ReasoningFormat;
using refrain::engine::ToolFormat;
using refrain::server::ModelLimits;

void Require(bool condition) {
  if (!condition) std::abort();
}

ModelLimits Limits(ToolFormat tools, ReasoningFormat reasoning, MessageForm form) {
  return {.served_name = "m",
          .vocab_size = 258,
          .max_context_tokens = 4096,
          .max_choices = 8,
          .max_beams = 6,
          .tools = tools,
          .message_forms = {.without_tools = form, .with_tools = form},
          .reasoning = reasoning};
}

void RequireShown(const absl::Status& error) {
  Require(error.code() == absl::StatusCode::kInvalidArgument ||
          error.code() == absl::StatusCode::kNotFound);
  const ::grpc::Status sent = refrain::server::rpc::GrpcStatusOf(error);
  Require(!sent.ok() && !sent.error_message().empty() && !sent.error_details().empty());
}

void RequireTaken(const refrain::engine::Request& request, const ModelLimits& limits) {
  Require(request.n >= 1 && request.n <= request.sequences());
  Require(request.sequences() <= limits.max_choices);
  Require(refrain::engine::CheckRequest(request, {.max_choices = limits.max_choices,
                                                  .max_beams = limits.max_beams,
                                                  .vocab_size = limits.vocab_size})
              .ok());
  Require(request.stop.max_tokens >= 0 && request.stop.max_tokens <= limits.max_context_tokens);
  Require(request.stop.min_tokens <= request.stop.max_tokens);
}

template <typename Message, typename Read>
void Feed(const uint8_t* data, size_t size, Read read) {
  static const ModelLimits kModels[] = {
      Limits(ToolFormat::kHermes, ReasoningFormat::kNone, {}),
      Limits(ToolFormat::kLlama3, ReasoningFormat::kThink, {.argument_strings = true}),
      Limits(ToolFormat::kUnknown, ReasoningFormat::kThink,
             {.null_content = true, .argument_strings = true, .broken_arguments = true}),
  };
  Message message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return;
  for (const ModelLimits& limits : kModels) {
    const auto request = read(message, limits);
    if (request.ok()) {
      RequireTaken(*request, limits);
    } else {
      RequireShown(request.status());
    }
  }
}

template <typename Result>
absl::StatusOr<refrain::engine::Request> Inner(Result result) {
  if (!result.ok()) return result.status();
  return std::move(result->request);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace rpc = refrain::server::rpc;
  namespace v1 = refrain::v1;
  Feed<v1::GenerateRequest>(data, size, [](const auto& message, const ModelLimits& limits) {
    return Inner(rpc::ReadGenerate(message, limits));
  });
  Feed<v1::ChatRequest>(data, size, [](const auto& message, const ModelLimits& limits) {
    return Inner(rpc::ReadChat(message, limits));
  });
  Feed<v1::CachedPrompt>(data, size, [](const auto& message, const ModelLimits& limits) {
    return rpc::ReadCachedPrompt(message, limits);
  });
  return 0;
}
