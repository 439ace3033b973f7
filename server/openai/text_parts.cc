#include "server/openai/text_parts.h"

#include <nlohmann/json.hpp>

namespace refrain::server::openai {
namespace {

// What a part says, null where that is nothing; false when it is not text.
bool IsText(const Json& part, const std::string** said) {
  const Json* content = &part;
  *said = nullptr;
  if (part.is_object()) {
    const auto type = part.find("type");
    const char* const member = type != part.end() ? TextMemberOrNull(*type) : nullptr;
    if (member == nullptr) return false;
    const auto found = part.find(member);
    if (found == part.end() || found->is_null()) return true;
    content = &*found;
  }
  *said = content->get_ptr<const std::string*>();
  return *said != nullptr;
}

}  // namespace

// OpenAI's other API, and other servers' answers that clients send back, have names of their own
// for text.
const char* TextMemberOrNull(const Json& type) {
  constexpr const char* kTextParts[][2] = {{"text", "text"},
                                           {"input_text", "text"},
                                           {"output_text", "text"},
                                           {"refusal", "refusal"},
                                           {"thinking", "thinking"}};
  for (const auto& [name, member] : kTextParts) {
    if (type == name) return member;
  }
  return nullptr;
}

bool JoinTextParts(const Json& parts, std::string* text) {
  bool first = true;
  for (const Json& part : parts) {
    const std::string* said = nullptr;
    if (!IsText(part, &said)) return false;
    if (said == nullptr) continue;
    if (!first) text->push_back('\n');
    first = false;
    text->append(*said);
  }
  return true;
}

size_t FirstOtherPart(const Json& parts) {
  size_t index = 0;
  for (const Json& part : parts) {
    const std::string* said = nullptr;
    if (!IsText(part, &said)) return index;
    ++index;
  }
  return index;
}

}  // namespace refrain::server::openai
