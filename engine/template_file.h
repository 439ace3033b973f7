#ifndef REFRAIN_ENGINE_TEMPLATE_FILE_H_
#define REFRAIN_ENGINE_TEMPLATE_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/chat_template.h"

namespace refrain::engine {

// model.chat_template_file: a chat template that stands above the model's. Failures name the key,
// the path and what is wrong in which line. Any thread.

// Its text, of 1 byte to 16 MiB.
absl::StatusOr<std::string> ReadTemplateFile(const std::string& path);

// As ChatTemplate::Create, and NOT_FOUND for a name that stands for a template: it shows the model
// no message.
absl::StatusOr<std::unique_ptr<ChatTemplate>> MakeChatTemplate(const ChatTemplateSpec& spec);

// What MakeChatTemplate says of the text of that file.
absl::Status OfTemplateFile(const absl::Status& status, const std::string& path);

// What a load refuses whatever the model is: for who looks before there is one.
absl::Status CheckTemplateFile(const std::string& path);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEMPLATE_FILE_H_
