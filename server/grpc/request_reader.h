#ifndef REFRAIN_SERVER_GRPC_REQUEST_READER_H_
#define REFRAIN_SERVER_GRPC_REQUEST_READER_H_

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "proto/admin.pb.h"
#include "proto/inference.pb.h"
#include "server/grpc/generation_request.h"
#include "server/request_limits.h"

namespace refrain::server::rpc {

// Requests of the protocol as the engine's. Every field is checked by range and combination, within
// the limits of the HTTP API; the error (INVALID_ARGUMENT, NOT_FOUND for the model) carries the
// field's path from the request on: "params.sampling.temperature", "chat.messages[2].content". What
// only the engine can tell, lengths in tokens, is its to refuse. Time in proportion to the message.
// Pure; any thread.
absl::StatusOr<GenerationRequest> ReadGenerate(const v1::GenerateRequest& in,
                                               const ModelLimits& limits);
absl::StatusOr<GenerationRequest> ReadChat(const v1::ChatRequest& in, const ModelLimits& limits);
// A request that computes the prompt only; `in` is the member `prompt` of what was asked.
absl::StatusOr<engine::Request> ReadCachedPrompt(const v1::CachedPrompt& in,
                                                 const ModelLimits& limits);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_REQUEST_READER_H_
