#ifndef REFRAIN_ENGINE_CHAT_PROMPT_H_
#define REFRAIN_ENGINE_CHAT_PROMPT_H_

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "engine/text/chat_template.h"
#include "engine/text/encode_pace.h"

namespace refrain::engine {

// A conversation as the template shows it, cut behind the last message's text where that is to be
// continued. Takes what `chat` holds. Pure; any thread. INVALID_ARGUMENT for what the template
// refuses, and for a message that cannot be continued: one without text, or of which the template
// does not show where its text ends. Where the template has thoughts, `reasoning` tells whether one
// has been opened for the answer: by the tags in what the template ends with, or in the message's
// text and in front of it; `by_tags` tells it of any. `pace` as ChatTemplate::Render's.
absl::StatusOr<RenderedChat> RenderChatPrompt(const ChatTemplate& chat_template, ChatPrompt chat,
                                              EncodePace* pace = nullptr);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_CHAT_PROMPT_H_
