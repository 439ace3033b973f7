#ifndef REFRAIN_SERVER_OPENAI_SAMPLING_FIELDS_H_
#define REFRAIN_SERVER_OPENAI_SAMPLING_FIELDS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/field_reader.h"
#include "server/openai/protocol.h"

namespace refrain::server::openai {

// The fields that both endpoints share. What is wrong is recorded in `fields`.
void ReadModel(FieldReader& fields, const ModelLimits& limits);
// Behind the fields that say whether beams are searched.
void ReadSamplingFields(FieldReader& fields, const ModelLimits& limits, engine::Request* request);
// `max_tokens_name`: the field that `stop->max_tokens` was read from.
void ReadStopFields(FieldReader& fields, std::string_view max_tokens_name,
                    const ModelLimits& limits, engine::StopParams* stop);
void ReadStreamFields(FieldReader& fields, GenerationCall* call);
// Hints how long the prompt is worth keeping; never a namespace.
void ReadCacheFields(FieldReader& fields, GenerationCall* call, engine::Request* request);
// What is shown of tokens, and how much of the prompt counts. `top` of the log-probabilities is
// read before.
void ReadOutputFields(FieldReader& fields, const ModelLimits& limits, GenerationCall* call,
                      engine::Request* request);

// What is wrong with one bias or stop string, over HTTP and gRPC in the same words; `shown` is the
// value, and for one of several stop strings its place.
std::string LogitBiasProblem(int32_t token_id, std::string_view shown);
std::string StopProblem(std::string_view shown);

// How many of a prompt's last tokens count by `truncate_prompt_tokens`, which is -1 or over 0.
int32_t KeptPromptTokens(int64_t truncate, const engine::StopParams& stop,
                         const ModelLimits& limits);
// Whether a prompt is expected to come again: by its retention where that was told, else by a cache
// key, or for lack of any other purpose.
bool ExpectsReuse(std::optional<bool> retained, bool has_key, const engine::StopParams& stop);

// The schema of a field that is refused unless it is empty.
inline constexpr char kEmptySchema[] = R"({"enum":[null,"",[],{}]})";
// As that schema has it; null: absent.
bool IsEmpty(const Json* value_or_null);

// The schema of a non-empty array of token ids.
std::string TokenIdsSchema(const ModelLimits& limits, int64_t most = 0);

// `array` as token ids of the vocabulary; `name` is blamed for what is not.
std::vector<engine::TokenId> ReadTokenIds(FieldReader& fields, std::string_view name,
                                          const Json& array, const ModelLimits& limits);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_SAMPLING_FIELDS_H_
