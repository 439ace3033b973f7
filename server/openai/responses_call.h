#ifndef REFRAIN_SERVER_OPENAI_RESPONSES_CALL_H_
#define REFRAIN_SERVER_OPENAI_RESPONSES_CALL_H_

#include "server/openai/field_reader.h"
#include "server/openai/protocol.h"

namespace refrain::server::openai {

// Reads the body of /v1/responses, but for its model, into the same request that the chat of the
// same conversation is: what both have is read by the same code, and what a chat refuses (tools
// without a place in the template) is refused here. Nothing is stored, so what refers to something
// stored is refused, as is what makes more than one answer. What is wrong is recorded in `fields`.
// Pure.
void ReadResponsesCall(FieldReader& fields, const ModelLimits& limits, GenerationCall* call);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_RESPONSES_CALL_H_
