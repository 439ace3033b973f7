#ifndef REFRAIN_SERVER_OPENAI_RESPONSES_INPUT_H_
#define REFRAIN_SERVER_OPENAI_RESPONSES_INPUT_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "server/json.h"
#include "server/openai/field_reader.h"

namespace refrain::server::openai {

// The conversation of a call to /v1/responses, in the form of a chat's.
struct ResponsesInput {
  Json messages = Json::array();
  std::vector<size_t> items;  // [messages] index in `input` of the item that each one begins with
  std::vector<size_t> calls;  // [tool calls of all messages] the same of the item that each one is
};

// Reads `instructions` and `input`: a string, or a list of items. What is wrong is recorded in
// `fields`, with the item's index.
//
// What the assistant said in one turn becomes one message, as templates expect it: its reasoning,
// its text and its calls, each of which is an item. A turn ends with an item of somebody else, and
// where a second text follows the first one with no call between. Reasoning that nothing of its
// turn follows or precedes is left out, as is what is encrypted.
//
// `instructions` become the system message in front; system and developer messages that `input`
// begins with are added to it behind a blank line, since many templates take one such message
// alone. Linear in the input, of whose texts it makes a copy.
ResponsesInput ReadResponsesInput(FieldReader& fields);

// `tools` in the form of a chat's; an empty array where there are none. Only functions are known.
Json ReadResponsesTools(FieldReader& fields);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_RESPONSES_INPUT_H_
