#include "engine/text/chat_template_texts.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/text/json_members.h"

namespace refrain::engine {
namespace {

using Json = nlohmann::json;
using Templates = std::map<std::string, std::string>;

constexpr char kDefault[] = "default";

absl::Status Refuse(const char* verb, const Json& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer_config.json: chat_template ", verb, " ", ShownInMessage(value),
                   ", must be a string or a list of named templates, each a "
                   "{\"name\": string, \"template\": string}"));
}

absl::StatusOr<Templates> TemplatesOfConfig(const Json& config) {
  Templates found;
  const Json* chat = FindOrNull(config, "chat_template");
  if (chat == nullptr) return found;
  if (chat->is_string()) {
    found[kDefault] = chat->get<std::string>();
    return found;
  }
  if (!chat->is_array()) return Refuse("is", *chat);
  for (const Json& named : *chat) {
    const Json* name = FindOrNull(named, "name");
    const Json* text = FindOrNull(named, "template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string()) {
      return Refuse("holds", named);
    }
    found.insert_or_assign(name->get<std::string>(), text->get<std::string>());
  }
  return found;
}

}  // namespace

std::string ShownInMessage(const Json& value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  constexpr size_t kMaxBytes = 96;
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  return text;
}

absl::Status ReadChatTemplates(const Json& config,
                               const std::map<std::string, std::string_view>& by_file,
                               TokenizerSpec* spec) {
  Templates found(by_file.begin(), by_file.end());
  if (!found.contains(kDefault)) {
    absl::StatusOr<Templates> of_config = TemplatesOfConfig(config);
    if (!of_config.ok()) return of_config.status();
    found.merge(*of_config);
  }
  const auto chat = found.find(kDefault);
  if (chat != found.end()) {
    spec->chat_template = std::move(chat->second);
    found.erase(chat);
  }
  spec->named_chat_templates = std::move(found);
  return absl::OkStatus();
}

}  // namespace refrain::engine
