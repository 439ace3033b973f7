#ifndef REFRAIN_SERVER_OPENAI_CHOICE_FIELDS_H_
#define REFRAIN_SERVER_OPENAI_CHOICE_FIELDS_H_

#include "server/openai/field_reader.h"
#include "server/openai/protocol.h"

namespace refrain::server::openai {

// `n`, `best_of`, and beam search with its own parameters. What is wrong is recorded in `fields`.
void ReadChoiceFields(FieldReader& fields, const ModelLimits& limits, engine::Request* request);

// Once all other fields of the request are read: refuses those that contradict best_of, beams or
// the form of the answer.
void RefuseContradictions(FieldReader& fields, const ModelLimits& limits,
                          const engine::Request& request, bool stream);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_CHOICE_FIELDS_H_
