#ifndef REFRAIN_SERVER_OPENAI_MAKE_ANSWER_FORMAT_H_
#define REFRAIN_SERVER_OPENAI_MAKE_ANSWER_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/text/tokenizer.h"
#include "server/openai/answer_format.h"
#include "server/openai/protocol.h"

namespace refrain::server::openai {

// What an answer tells of where it comes from.
struct AnswerOrigin {
  std::string request_id;
  std::string model;
  int64_t created_unix_s = 0;
  size_t prompts = 1;
  const engine::Tokenizer* tokenizer = nullptr;  // outlives the format
};

// The format of the endpoint that `call` was sent to. Pure.
std::unique_ptr<AnswerFormat> MakeAnswerFormat(const GenerationCall& call,
                                               const AnswerOrigin& origin);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_MAKE_ANSWER_FORMAT_H_
