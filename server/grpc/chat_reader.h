#ifndef REFRAIN_SERVER_GRPC_CHAT_READER_H_
#define REFRAIN_SERVER_GRPC_CHAT_READER_H_

#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/grpc/complaint.h"
#include "server/openai/shown_text.h"

namespace refrain::server::rpc {

// Reads a message's member `chat` into a prompt, and how its thought and tool calls are to be found
// in the answer. It is checked where those of HTTP are, so that a template sees the same. What is
// wrong is recorded in `complaint`. Inside grpc/ only. Pure.
engine::ChatPrompt ReadChatPrompt(const v1::ChatPrompt& in, openai::ShownText::Options* shown,
                                  size_t* conversation_bytes, Complaint& complaint);

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_CHAT_READER_H_
