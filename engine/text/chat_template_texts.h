#ifndef REFRAIN_ENGINE_TEXT_CHAT_TEMPLATE_TEXTS_H_
#define REFRAIN_ENGINE_TEXT_CHAT_TEMPLATE_TEXTS_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/text/vocabulary.h"

namespace refrain::engine {

// The chat templates of a Hugging Face folder: those in files of their own (`by_file`, by name;
// chat_template.jinja is "default") stand above tokenizer_config.json, whose chat_template is a
// string or a list of named ones, and which is not read where the default one is a file, as with
// transformers. (There any file makes it unread; a folder whose files have no default one would be
// left without.) Fills the templates of `spec`. Pure; any thread. Fails for a chat_template that is
// neither.
absl::Status ReadChatTemplates(const nlohmann::json& config,
                               const std::map<std::string, std::string_view>& by_file,
                               TokenizerSpec* spec);

// A value for a message. Not what is inside of arrays and objects: hostile files nest deeper than
// the stack is.
std::string ShownInMessage(const nlohmann::json& value);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_CHAT_TEMPLATE_TEXTS_H_
