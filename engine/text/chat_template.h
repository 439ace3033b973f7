#ifndef REFRAIN_ENGINE_TEXT_CHAT_TEMPLATE_H_
#define REFRAIN_ENGINE_TEXT_CHAT_TEMPLATE_H_

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/encode_pace.h"
#include "engine/text/jinja/value.h"
#include "engine/text/message_form.h"
#include "engine/text/reasoning_format.h"
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
  // RenderChatPrompt's, and the same also where the template is not known to have thoughts.
  ReasoningStart reasoning = ReasoningStart::kBehind;
  ReasoningStart by_tags = ReasoningStart::kBefore;
};

// The texts that a model has for its chats, as its files say them.
struct ChatTemplateSpec {
  std::string source;  // empty: there is none
  // By name. "tool_use" stands above `source` for requests with tools, as transformers has it; of
  // the others only the names are told, where nothing else is there.
  std::map<std::string, std::string> named;
  // Of templates' variables `bos_token`, `pad_token` and the like.
  std::map<std::string, std::string> tokens;
  bool finds_reasoning = true;  // false: reasoning_format() is kNone, whatever the texts say
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
// Tokens that only look like control tokens (Tokenizer::IsReserved) count as such. Both ways give
// equal ids for messages that spell none. Hugging Face recognises them everywhere; who wants that
// passes {.parse_special = true, .add_bos = false} alone.
//
// Does not tokenize, does not normalise messages (null content, lists of parts): the server does
// that before. Called by the encode pool; immutable, any number of threads.
// Create refuses a template beyond the supported subset, naming line and construct, but a tool_use
// one beside a default one, which is then used with tools, too; NOT_FOUND where there is none.
// Render fails when the template calls raise_exception, uses what the messages lack, or exceeds a
// limit, and where the model has templates of other names only.
class ChatTemplate {
 public:
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(const ChatTemplateSpec& spec);
  // Of a single template.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(std::string_view source,
                                                              std::string_view bos_token,
                                                              std::string_view eos_token);
  // For a server that is to run where Create failed: FAILED_PRECONDITION for every conversation,
  // with the reason.
  static std::unique_ptr<ChatTemplate> Unusable(const absl::Status& why);
  ~ChatTemplate();

  // `pace` may hold it up or stop it, CANCELLED, and be null.
  absl::StatusOr<RenderedChat> Render(const ChatTemplateInput& input,
                                      EncodePace* pace = nullptr) const;
  // False for one that makes the same of whatever is said: a name that stands for a template.
  bool shows_messages() const;
  // Of conversations with tools.
  ToolFormat tool_format() const;
  // What its answers may begin with.
  ReasoningFormat reasoning_format() const;
  // For the log where something is not as the model's files say, else "".
  const std::string& warning() const { return warning_; }
  // How messages are to be made for it.
  MessageForms message_forms() const;

 private:
  struct Variant {
    std::unique_ptr<jinja::Template> parsed;
    bool knows_developer = false;  // the role of that name
    bool shows_messages = true;
    bool reads_xml_tools = false;  // and not `tools`
    ToolFormat tool_format = ToolFormat::kNone;
    ReasoningFormat reasoning_format = ReasoningFormat::kNone;
    MessageForm form;
  };

  ChatTemplate() = default;
  // Needs tokens_.
  absl::StatusOr<Variant> MakeVariant(std::string_view source) const;
  absl::StatusOr<RenderedChat> Render(const Variant& variant, const ChatTemplateInput& input,
                                      EncodePace* pace) const;
  absl::Status NoTemplate() const;

  std::optional<Variant> chat_;
  std::optional<Variant> tool_use_;
  std::string names_;  // of the named templates, for a message
  std::string warning_;
  absl::Status unusable_;
  bool finds_reasoning_ = true;
  std::map<std::string, std::string> tokens_;
};

// Options that recognise control tokens of the template and not those of the content. They point
// into `rendered`, which must outlive them.
EncodeOptions SafeEncodeOptions(const RenderedChat& rendered);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_TEXT_CHAT_TEMPLATE_H_
