// Messages of the gRPC API: the bytes as each request of the protocol. Whatever comes out of the
// decoding, the reader makes a request of it that the engine takes, or an error that can be shown
// to the client.

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

using refrain::server::ModelLimits;

void Require(bool condition) {
  if (!condition) std::abort();
}

const ModelLimits& Limits() {
  static const ModelLimits limits = {.served_name = "m",
                                     .vocab_size = 258,
                                     .max_context_tokens = 4096,
                                     .max_choices = 8,
                                     .max_beams = 6,
                                     .tools = refrain::engine::ToolFormat::kHermes};
  return limits;
}

void RequireShown(const absl::Status& error) {
  Require(error.code() == absl::StatusCode::kInvalidArgument ||
          error.code() == absl::StatusCode::kNotFound);
  const ::grpc::Status sent = refrain::server::rpc::GrpcStatusOf(error);
  Require(!sent.ok() && !sent.error_message().empty() && !sent.error_details().empty());
}

void RequireTaken(const refrain::engine::Request& request) {
  Require(request.n >= 1 && request.n <= request.sequences());
  Require(request.sequences() <= Limits().max_choices);
  Require(refrain::engine::CheckRequest(request, {.max_choices = Limits().max_choices,
                                                  .max_beams = Limits().max_beams,
                                                  .vocab_size = Limits().vocab_size})
              .ok());
  Require(request.stop.max_tokens >= 0 && request.stop.max_tokens <= Limits().max_context_tokens);
  Require(request.stop.min_tokens <= request.stop.max_tokens);
}

template <typename Message, typename Read>
void Feed(const uint8_t* data, size_t size, Read read) {
  Message message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return;
  const auto request = read(message);
  if (request.ok()) {
    RequireTaken(*request);
  } else {
    RequireShown(request.status());
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
  Feed<v1::GenerateRequest>(data, size, [](const v1::GenerateRequest& message) {
    return Inner(rpc::ReadGenerate(message, Limits()));
  });
  Feed<v1::ChatRequest>(data, size, [](const v1::ChatRequest& message) {
    return Inner(rpc::ReadChat(message, Limits()));
  });
  Feed<v1::CachedPrompt>(data, size, [](const v1::CachedPrompt& message) {
    return rpc::ReadCachedPrompt(message, Limits());
  });
  return 0;
}
