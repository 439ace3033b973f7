#ifndef REFRAIN_TESTS_SERVER_GRPC_TEXT_REQUEST_H_
#define REFRAIN_TESTS_SERVER_GRPC_TEXT_REQUEST_H_

#include "proto/inference.pb.h"
#include "server/grpc/request_reader.h"

namespace refrain::server::rpc {

// What the model of the tests of messages can do.
inline const ModelLimits kLimits = {.served_name = "m",
                                    .vocab_size = 258,
                                    .max_context_tokens = 4096,
                                    .max_choices = 8,
                                    .max_beams = 6,
                                    .tools = engine::ToolFormat::kHermes};

// The least that is right.
inline v1::GenerateRequest TextRequest() {
  v1::GenerateRequest request;
  request.mutable_text()->set_text("hello");
  return request;
}

}  // namespace refrain::server::rpc

#endif  // REFRAIN_TESTS_SERVER_GRPC_TEXT_REQUEST_H_
