#ifndef REFRAIN_SERVER_OPENAI_CACHE_HINTS_H_
#define REFRAIN_SERVER_OPENAI_CACHE_HINTS_H_

#include <optional>
#include <string_view>

#include "server/openai/field_reader.h"

namespace refrain::server::openai {

// What OpenAI's clients say of a prompt's place in the cache: `prompt_cache_options`, and
// `prompt_cache_breakpoint` of a message's parts. Both are read as hints that the prompt will come
// again; where a breakpoint stands, and how long a lifetime is, makes no difference.

// True: it will come again. False: the client wants no caching, which it says by the mode
// "explicit" without any breakpoint. Nothing: neither was said. `conversation`: the field that has
// the messages, as for ReadCacheBreakpoints; empty: none.
std::optional<bool> ReadCacheHints(FieldReader& fields, std::string_view conversation);

// Whether a part of a message has a breakpoint. `conversation` ("messages") may be an array of
// objects with `content`, or a function's `output`; what else is wrong with it is not looked at.
bool ReadCacheBreakpoints(FieldReader& fields, std::string_view conversation);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_CACHE_HINTS_H_
