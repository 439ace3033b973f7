#ifndef REFRAIN_ENGINE_TEXT_MESSAGE_FORM_H_
#define REFRAIN_ENGINE_TEXT_MESSAGE_FORM_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine {

// How a chat template takes an assistant's message that has tool calls. Most print an object as
// JSON and pass over an empty text; some (DeepSeek R1's) print calls only where the content is
// none, or add the arguments to a string.
struct MessageForm {
  bool null_content = false;      // where there is no text, `content` is none, not ""
  bool argument_strings = false;  // `arguments` are JSON as text, not the object
  // Arguments that are a text are shown as they are, whatever they say: so those of a call that was
  // cut or that the model broke. Else they must be an object.
  bool broken_arguments = false;

  bool operator==(const MessageForm&) const = default;
};

// The forms of one model, for requests without and with tools.
struct MessageForms {
  MessageForm without_tools, with_tools;
};

// Renders messages and tools, or fails.
using TrialRender = absl::FunctionRef<absl::StatusOr<std::string>(const jinja::Value& messages,
                                                                  const jinja::Value& tools)>;

// Whether what the template makes of a conversation depends on what is said, and whether it has the
// names of tools. True where it fails: then it tells whoever asks why. Pure.
bool ShowsMessages(TrialRender render);
bool ShowsTools(TrialRender render);

// Found out by trial: the first form in which the template shows a call's arguments otherwise than
// Python prints an object, else the first in which it shows them at all, else the usual one. Pure.
MessageForm DetectMessageForm(TrialRender render);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_MESSAGE_FORM_H_
