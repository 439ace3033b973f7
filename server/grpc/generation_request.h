#ifndef REFRAIN_SERVER_GRPC_GENERATION_REQUEST_H_
#define REFRAIN_SERVER_GRPC_GENERATION_REQUEST_H_

#include <cstddef>
#include <cstdint>

#include "engine/request.h"
#include "server/openai/shown_text.h"

namespace refrain::server::rpc {

// What the messages of an answer show.
struct AnswerOptions {
  int32_t num_choices = 1;
  openai::ShownText::Options shown;
  bool logprobs = false;          // of the choices' tokens
  bool echo = false;              // the prompt's tokens are part of the choices
  bool prompt_token_ids = false;  // beside the choices
  bool prompt_logprobs = false;   // beside the choices
  bool shows_end_token = false;   // as text, unless it is a control token that is not
  bool cache_report = false;      // usage tells why not all of the prompt was cached
  bool continuous_usage = false;  // in every message
};

// One call for generated text, understood and checked.
struct GenerationRequest {
  engine::Request request;
  AnswerOptions answer;
  size_t conversation_bytes = 0;  // of memory, beside those of the message
};

}  // namespace refrain::server::rpc

#endif  // REFRAIN_SERVER_GRPC_GENERATION_REQUEST_H_
