#ifndef REFRAIN_ENGINE_LOAD_TEXT_H_
#define REFRAIN_ENGINE_LOAD_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "engine/engine_parts.h"
#include "engine/model/weight_source.h"
#include "engine/options.h"

namespace refrain::engine {

// Adds to what the log is to say of a start; "" says nothing.
void AddWarning(const std::string& more, std::string& warning);

// Fills tokenizer and chat template of `parts`, and of its model what clients are told of them.
//
// A chat template of the model's that cannot be used (beyond the supported subset of Jinja, or a
// name that stands for none that we have) costs the model its chats, with a warning: completions
// need none. One of options.chat_template_file, which stands above the model's, is refused with the
// key, the path and what is wrong in which line. Fails for a tokenizer that cannot be used, too.
// Called at load, by one thread.
absl::Status LoadText(const ModelOptions& options, const WeightSource& source, EngineParts& parts);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_LOAD_TEXT_H_
