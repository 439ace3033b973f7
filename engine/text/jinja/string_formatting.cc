// str.format, as far as templates use it.

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/text/jinja/formatted_text.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/string_functions.h"
#include "engine/text/jinja/template_error.h"

namespace refrain::engine::jinja {
namespace {

const Value& NamedArgument(const CallArguments& arguments, std::string_view name, Budget* budget) {
  budget->Bytes(arguments.named.size() * (name.size() + 1));
  for (const auto& [known, value] : arguments.named) {
    if (known == name) return value;
  }
  throw TemplateError("format: there is no argument '" + std::string(name) + "'");
}

const Value& PlacedArgument(const CallArguments& arguments, size_t place) {
  if (place < arguments.positional.size()) return arguments.positional[place];
  throw TemplateError("format: there are too few arguments");
}

bool IsDigits(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Text FormatFields(const Text& format, const CallArguments& arguments, Budget* budget) {
  const std::string_view text = format.bytes();
  FormattedText out(budget);
  const auto append = [&](const Value& value) {
    const Text shown = ToText(value, budget);
    out.Append(format.is_html() ? EscapeHtml(shown, budget) : shown);
  };
  size_t next = 0;
  bool counts = false, names_places = false;
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.Append(format.Substr(at, brace - at));
    if (brace == text.size()) break;
    if (text.substr(brace + 1, 1) == text.substr(brace, 1)) {
      out.Append(format.Substr(brace, 1));
      at = brace + 2;
      continue;
    }
    const size_t end = text.find('}', brace);
    if (text[brace] == '}' || end == std::string_view::npos) {
      throw TemplateError("format: a single brace");
    }
    const std::string_view field = text.substr(brace + 1, end - brace - 1);
    if (field.find_first_of("{.[!:") != std::string_view::npos) {
      throw TemplateError("format: the field {" + std::string(field.substr(0, 100)) +
                          "} is not supported");
    }
    counts = counts || field.empty();
    names_places = names_places || IsDigits(field);
    if (counts && names_places) throw TemplateError("format: fields with and without a place");
    if (field.empty()) {
      append(PlacedArgument(arguments, next++));
    } else if (IsDigits(field)) {
      append(PlacedArgument(arguments, std::stoul(std::string(field))));
    } else {
      append(NamedArgument(arguments, field, budget));
    }
    at = end + 1;
  }
  Text formatted = out.Take();
  formatted.set_is_html(format.is_html());
  return formatted;
}

}  // namespace refrain::engine::jinja
