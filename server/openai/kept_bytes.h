#ifndef REFRAIN_SERVER_OPENAI_KEPT_BYTES_H_
#define REFRAIN_SERVER_OPENAI_KEPT_BYTES_H_

#include <cstddef>

#include "engine/token_stream.h"
#include "server/openai/protocol.h"

// About how much memory an answer takes that is kept until its end, for GenerationReply. Pure.
namespace refrain::server::openai {

// In how many copies an answer is in memory at its end, 0 where it is not kept: a stream of
// /v1/responses then tells all of it four times.
inline size_t WholeCopies(const GenerationCall& call) {
  if (!call.stream) return 1;
  return call.endpoint == Endpoint::kResponses ? 5 : 0;
}

// What of the request is repeated: kept, and in three events of a stream.
inline size_t RepeatedBytes(const GenerationCall& call) {
  return call.echo.size() * (call.stream ? 4 : 1);
}

// Of a token as it stands in a whole answer. Its text is some four times as much as tokens spell:
// what ends within a stream of /v1/responses, as a thought does, is told three times more there.
inline size_t KeptBytes(const engine::TokenEvent& event) {
  constexpr size_t kTextBytes = 16;
  constexpr size_t kLogprobBytes = 90;
  return kTextBytes + (event.logprob.has_value() ? kLogprobBytes * (1 + event.top.size()) : 0);
}

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_KEPT_BYTES_H_
