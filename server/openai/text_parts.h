#ifndef REFRAIN_SERVER_OPENAI_TEXT_PARTS_H_
#define REFRAIN_SERVER_OPENAI_TEXT_PARTS_H_

#include <cstddef>
#include <string>

#include "server/json.h"

namespace refrain::server::openai {

// Content parts (an array) to one string, joined by newlines; false when a part is not text. One
// that says nothing is left out. Pure.
bool JoinTextParts(const Json& parts, std::string* text);

// The first part that is not text, by its index; all of them are: their number. Pure.
size_t FirstOtherPart(const Json& parts);

// The member that has the text of a part of this type; null: it is no text.
const char* TextMemberOrNull(const Json& type);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_TEXT_PARTS_H_
