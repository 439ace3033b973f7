#include "engine/load_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/template_file.h"
#include "engine/text/chat_template.h"
#include "engine/text/create_tokenizer.h"
#include "engine/text/known_templates.h"

namespace refrain::engine {
namespace {

std::string TokenText(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id.has_value() ? std::string(tokenizer.TokenBytes(*id)) : std::string();
}

// Leaves out the tokens added behind those that the embedding has rows for (`<pad>` of some Llama 2
// folders): no step could take them, and text that spells one stays text. Tells of them, for the
// log. Does nothing where tokens of text are among them: then tokenizer and model do not fit.
std::string LeaveOutTokensBeyond(size_t vocab_size, TokenizerSpec& spec) {
  const auto is_added = [](TokenType type) {
    return type == TokenType::kControl || type == TokenType::kUserDefined ||
           type == TokenType::kUnused;
  };
  if (spec.tokens.size() <= vocab_size || spec.token_types.size() != spec.tokens.size() ||
      !std::all_of(spec.token_types.begin() + static_cast<ptrdiff_t>(vocab_size),
                   spec.token_types.end(), is_added)) {
    return "";
  }
  const std::string note =
      absl::StrCat("tokens with ids from ", vocab_size, " to ", spec.tokens.size() - 1,
                   " (the last is '", absl::CHexEscape(spec.tokens.back()),
                   "') are not used: the model's vocab_size is ", vocab_size);
  spec.tokens.resize(vocab_size);
  spec.token_types.resize(vocab_size);
  return note;
}

TokenizerInfo InfoOf(const Tokenizer& tokenizer, const TokenizerSpec& spec) {
  TokenizerInfo info{.tokenizer_class = spec.tokenizer_class,
                     .tokens = spec.template_tokens,
                     .adds_bos = tokenizer.adds_bos(),
                     .chat_template = spec.chat_template};
  std::erase_if(info.tokens, [](const auto& token) { return token.second.empty(); });
  return info;
}

// Which template it is to be: the configuration's, or the model's, which may only be a name.
absl::Status ChooseTemplate(const ModelOptions& options, const Tokenizer& tokenizer,
                            TokenizerSpec& spec) {
  const std::string& path = options.chat_template_file;
  if (path.empty()) {
    if (const std::optional<std::string> known = KnownChatTemplate(spec.chat_template)) {
      spec.chat_template = absl::StrCat(tokenizer.adds_bos() ? "{{ bos_token }}" : "", *known);
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> text = ReadTemplateFile(path);
  if (!text.ok()) return text.status();
  spec.chat_template = *std::move(text);
  spec.named_chat_templates.clear();
  return absl::OkStatus();
}

absl::Status LoadTemplate(const ModelOptions& options, TokenizerSpec& spec, EngineParts& parts) {
  if (spec.chat_template.empty() && spec.named_chat_templates.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<ChatTemplate>> made =
      MakeChatTemplate({.source = std::move(spec.chat_template),
                        .named = std::move(spec.named_chat_templates),
                        .tokens = std::move(spec.template_tokens),
                        .finds_reasoning = options.finds_reasoning});
  if (made.ok()) {
    parts.chat_template = *std::move(made);
    AddWarning(parts.chat_template->warning(), parts.model.warning);
    return absl::OkStatus();
  }
  if (!options.chat_template_file.empty()) {
    return OfTemplateFile(made.status(), options.chat_template_file);
  }
  AddWarning(absl::StrCat(std::string(made.status().message()),
                          ": chats are refused, completions are not; model.chat_template_file "
                          "may name another chat template"),
             parts.model.warning);
  if (absl::IsNotFound(made.status())) {
    parts.model.tokenizer.chat_template.clear();
  } else {
    parts.chat_template = ChatTemplate::Unusable(made.status());
  }
  return absl::OkStatus();
}

}  // namespace

void AddWarning(const std::string& more, std::string& warning) {
  if (more.empty()) return;
  absl::StrAppend(&warning, warning.empty() ? "" : "; ", more);
}

absl::Status LoadText(const ModelOptions& options, const WeightSource& source, EngineParts& parts) {
  absl::StatusOr<TokenizerSource> read = source.ReadTokenizer();
  if (!read.ok()) return read.status();
  AddWarning(LeaveOutTokensBeyond(static_cast<size_t>(source.config().vocab_size), read->spec),
             parts.model.warning);
  absl::StatusOr<std::unique_ptr<Tokenizer>> made =
      read->sentencepiece_model.empty()
          ? CreateTokenizer(read->spec)
          : CreateSentencePieceTokenizer(read->sentencepiece_model, read->spec);
  if (!made.ok()) return made.status();
  parts.tokenizer = *std::move(made);
  if (const auto assumed = AssumedPreTokenizer(read->spec)) {
    AddWarning(absl::StrCat(
                   "the model names no pre-tokenizer (tokenizer.ggml.pre): ", std::string(*assumed),
                   " is assumed; answers are worse if it was trained with another"),
               parts.model.warning);
  }
  const Tokenizer& tokenizer = *parts.tokenizer;
  if (static_cast<int64_t>(tokenizer.vocab_size()) > source.config().vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer has ", tokenizer.vocab_size(),
                                                   " tokens, more than the model's vocab_size ",
                                                   source.config().vocab_size));
  }
  TokenizerSpec& spec = read->spec;
  spec.template_tokens.try_emplace("bos_token", TokenText(tokenizer, tokenizer.bos()));
  spec.template_tokens.try_emplace("eos_token", TokenText(tokenizer, tokenizer.eos()));
  absl::Status status = ChooseTemplate(options, tokenizer, spec);
  if (!status.ok()) return status;
  parts.model.tokenizer = InfoOf(tokenizer, spec);
  return LoadTemplate(options, spec, parts);
}

}  // namespace refrain::engine
