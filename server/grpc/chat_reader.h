#ifndef REFRAIN_SERVER_GRPC_CHAT_READER_H_
#define REFRAIN_SERVER_GRPC_CHAT_READER_H_

#include <optional>

#include "engine/grammar/output_format.h"
#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/grpc/complaint.h"
#include "server/grpc/generation_request.h"

namespace refrain::server::rpc {

// Reads a message's member `chat` into a prompt, and into `out` how its thought and tool calls are
// to be found in the answer. Calls that have to come, or may, become a part of `form`. It is
// checked where those of HTTP are, so that a template sees the same. What is wrong is recorded in
// `complaint`. Inside grpc/ only. Pure.
engine::ChatPrompt ReadChatPrompt(const v1::ChatPrompt& in, GenerationRequest* out,
                                  std::optional<engine::OutputFormat>* form, Complaint& complaint);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_CHAT_READER_H_
