#ifndef REFRAIN_ENGINE_TEXT_CHAT_TEMPLATE_H_
#define REFRAIN_ENGINE_TEXT_CHAT_TEMPLATE_H_

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/jinja/value.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tool_format.h"

namespace refrain::engine {

namespace jinja {
class Template;
}

struct ChatTemplateInput {
  jinja::Value messages;  // list of maps, in the order and with the keys of the request
  jinja::Value tools;     // list of maps; undefined: the request has none
  jinja::Value extra;     // map of further variables (chat_template_kwargs); undefined: none
  bool add_generation_prompt = true;
  std::tm now = {};  // what strftime_now shows
};

struct RenderedChat {
  std::string text;
  // The bytes of `text` that came from the request (messages, tools, extra), not from the template.
  // The names of the usual roles count as the template's.
  std::vector<TextSpan> content_spans;
};

// A model's own chat template.
//
// Turns messages into the text the model was trained on, and remembers which bytes came from the
// request. The safe way to ids, and the default, treats those as plain text, so that a message
// cannot forge control tokens:
//
//   auto rendered = chat_template->Render(input);
//   tokenizer.Encode(rendered->text, SafeEncodeOptions(*rendered));
//
// Both ways give equal ids for messages that spell no control token. Hugging Face recognises them
// everywhere; who wants that passes {.parse_special = true, .add_bos = false} alone.
//
// Does not tokenize, does not normalise messages (null content, lists of parts): the server does
// that before. Called by the encode pool; immutable, any number of threads.
// Create refuses a template beyond the supported subset, naming line and construct. Render fails
// when the template calls raise_exception, uses what the messages lack, or exceeds a limit.
class ChatTemplate {
 public:
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(std::string_view source,
                                                              std::string_view bos_token,
                                                              std::string_view eos_token);
  ~ChatTemplate();

  absl::StatusOr<RenderedChat> Render(const ChatTemplateInput& input) const;
  ToolFormat tool_format() const { return tool_format_; }

 private:
  ChatTemplate(std::unique_ptr<jinja::Template> parsed, std::string_view bos_token,
               std::string_view eos_token, ToolFormat tool_format, bool knows_developer);

  std::unique_ptr<jinja::Template> template_;
  std::string bos_token_;
  std::string eos_token_;
  ToolFormat tool_format_;
  bool knows_developer_;  // the role of that name
};

// Options that recognise control tokens of the template and not those of the content. They point
// into `rendered`, which must outlive them.
EncodeOptions SafeEncodeOptions(const RenderedChat& rendered);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_CHAT_TEMPLATE_H_
