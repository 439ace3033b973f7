#include "engine/grammar/schema_references.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

using Kind = SchemaValue::Kind;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool has_room = i + 2 < text.size();
    if (text[i] == '%' && has_room && HexDigit(text[i + 1]) >= 0 && HexDigit(text[i + 2]) >= 0) {
      decoded += static_cast<char>(16 * HexDigit(text[i + 1]) + HexDigit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// A reference token of a JSON pointer, without ~0 and ~1.
std::string Unescaped(std::string_view token) {
  std::string name;
  for (size_t i = 0; i < token.size(); ++i) {
    const bool is_escape = token[i] == '~' && i + 1 < token.size();
    if (is_escape && (token[i + 1] == '0' || token[i + 1] == '1')) {
      name += token[++i] == '0' ? '~' : '/';
    } else {
      name += token[i];
    }
  }
  return name;
}

std::optional<size_t> Index(std::string_view token) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), index);
  if (error != std::errc() || end != token.data() + token.size()) return std::nullopt;
  return index;
}

}  // namespace

absl::StatusOr<const SchemaValue*> SchemaReferences::Resolve(const SchemaValue& reference) {
  if (!reference.is(Kind::kString)) return SchemaError(reference, "is not a string");
  const auto refuse = [&](std::string_view what) {
    return SchemaError(
        reference, absl::StrCat("names ", ShownString(reference.text), ", ", std::string(what)));
  };
  const std::string& text = reference.text;
  const bool is_pointer = text == "#" || text.starts_with("#/");
  if (!is_pointer) return refuse("but only places of the schema itself (#/...) are supported");
  const std::string pointer = PercentDecoded(std::string_view(text).substr(1));
  const SchemaValue* at = &root_;
  for (size_t begin = 0; begin < pointer.size();) {
    const size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
    at = StepOrNull(*at, Unescaped(std::string_view(pointer).substr(begin + 1, end - begin - 1)));
    if (at == nullptr) return refuse("which is not there");
    begin = end;
  }
  return at;
}

const SchemaValue* SchemaReferences::StepOrNull(const SchemaValue& from, std::string_view token) {
  if (from.is(Kind::kArray)) {
    const std::optional<size_t> index = Index(token);
    return index && *index < from.items.size() ? &from.items[*index] : nullptr;
  }
  using Member = SchemaValue::Member;
  const auto name_of = [](const Member* member) -> std::string_view { return member->name; };
  const auto [entry, is_new] = sorted_.try_emplace(&from);
  std::vector<const Member*>& members = entry->second;
  if (is_new) {
    for (const Member& member : from.members) members.push_back(&member);
    std::ranges::sort(members, std::less<>(), name_of);
  }
  const auto found = std::ranges::lower_bound(members, token, std::less<>(), name_of);
  return found != members.end() && (*found)->name == token ? &(*found)->value : nullptr;
}

}  // namespace refrain::engine
