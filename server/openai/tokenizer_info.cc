#include "server/openai/tokenizer_info.h"

#include <map>
#include <optional>
#include <string_view>

#include "engine/text/utf8.h"
#include "server/concat.h"
#include "server/json.h"

namespace refrain::server::openai {
namespace {

// What transformers makes of a tokenizer whose files name no class, as those of GGUF.
constexpr std::string_view kAnyClass = "PreTrainedTokenizerFast";

// Files may hold any bytes.
void AppendText(std::string_view text, std::string* out) {
  AppendJsonString(engine::ReplaceIllFormedUtf8(text), out);
}

}  // namespace

std::string TokenizerInfoObject(const engine::ModelInfo& model) {
  const engine::TokenizerInfo& info = model.tokenizer;
  std::string object = "{\"tokenizer_class\":";
  AppendText(info.tokenizer_class.empty() ? kAnyClass : info.tokenizer_class, &object);
  ConcatTo(&object, ",\"model_max_length\":", model.max_context_tokens,
           ",\"add_bos_token\":", info.adds_bos ? "true" : "false");
  std::map<std::string_view, std::optional<std::string_view>> tokens;
  for (const char* role : {"bos_token", "eos_token", "pad_token", "unk_token"}) tokens[role];
  for (const auto& [role, spelling] : info.tokens) tokens[role] = spelling;
  for (const auto& [role, spelling] : tokens) {
    ConcatTo(&object, ",\"", role, "\":");
    if (spelling.has_value()) {
      AppendText(*spelling, &object);
    } else {
      object += "null";
    }
  }
  if (!info.chat_template.empty()) {
    object += ",\"chat_template\":";
    AppendText(info.chat_template, &object);
  }
  object += "}";
  return object;
}

}  // namespace refrain::server::openai
