#ifndef REFRAIN_SERVER_OPENAI_SAMPLING_FIELDS_H_
#define REFRAIN_SERVER_OPENAI_SAMPLING_FIELDS_H_

#include <string>
#include <vector>

#include "server/openai/field_reader.h"
#include "server/openai/protocol.h"

namespace refrain::server::openai {

// The fields that both endpoints share. What is wrong is recorded in `fields`.
void ReadSamplingFields(FieldReader& fields, const ModelLimits& limits, engine::Request* request);
void ReadStopFields(FieldReader& fields, const ModelLimits& limits, engine::StopParams* stop);
void ReadStreamFields(FieldReader& fields, GenerationCall* call);
// Hints how long the prompt is worth keeping; never a namespace.
void ReadCacheFields(FieldReader& fields, GenerationCall* call, engine::Request* request);
// What is shown of tokens, and how much of the prompt counts. `top` of the log-probabilities is
// read before.
void ReadOutputFields(FieldReader& fields, const ModelLimits& limits, GenerationCall* call,
                      engine::Request* request);

// The schema of a field that is refused unless it is empty.
inline constexpr char kEmptySchema[] = R"({"enum":[null,"",[],{}]})";

// The schema of a non-empty array of token ids.
std::string TokenIdsSchema(const ModelLimits& limits);

// `array` as token ids of the vocabulary; `name` is blamed for what is not.
std::vector<engine::TokenId> ReadTokenIds(FieldReader& fields, std::string_view name,
                                          const Json& array, const ModelLimits& limits);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_SAMPLING_FIELDS_H_
