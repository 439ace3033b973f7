#ifndef REFRAIN_SERVER_OPENAI_CACHE_HINTS_H_
#define REFRAIN_SERVER_OPENAI_CACHE_HINTS_H_

#include <optional>

#include "server/openai/field_reader.h"

namespace refrain::server::openai {

// What OpenAI's clients say of a prompt's place in the cache: `prompt_cache_options`, and
// `prompt_cache_breakpoint` of a message's parts. Both are read as hints that the prompt will come
// again; where a breakpoint stands, and how long a lifetime is, makes no difference.

// True: it will come again. False: the client wants no caching, which it says by the mode
// "explicit" without any breakpoint. Nothing: neither was said. `has_messages`: of a chat.
std::optional<bool> ReadCacheHints(FieldReader& fields, bool has_messages);

// Whether a part of `messages` has a breakpoint. What else is wrong with messages is not looked at.
bool ReadCacheBreakpoints(FieldReader& fields);

}  // namespace refrain::server::openai

#endif  // REFRAIN_SERVER_OPENAI_CACHE_HINTS_H_
