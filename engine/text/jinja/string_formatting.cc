// str.format and the % of strings, as far as templates use them.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/text/jinja/numbers.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/string_functions.h"
#include "engine/text/jinja/template_error.h"

namespace refrain::engine::jinja {
namespace {

// What is made of a format and its arguments.
class Formatted {
 public:
  explicit Formatted(Budget* budget) : budget_(budget) {}

  void Append(const Text& text) {
    budget_->Bytes(text.size());
    if (out_.size() + text.size() > Budget::kMaxStringBytes) {
      budget_->String(out_.size() + text.size());
    }
    out_.Append(text);
  }
  void Append(const Value& value) { Append(ToText(value, budget_)); }
  Text Take() { return std::move(out_); }

 private:
  Budget* budget_;
  Text out_;
};

const Value& NamedArgument(const CallArguments& arguments, std::string_view name) {
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

// %d of a number.
Value WholeNumber(const Value& value) {
  if (value.is_float()) return Value::Int(TruncateFloat(value.AsFloat()));
  const std::optional<int64_t> number = IntegerOrNull(value);
  if (!number.has_value()) {
    throw TemplateError("format: %d needs a number, not " + std::string(TypeName(value)));
  }
  return Value::Int(*number);
}

}  // namespace

Text FormatFields(const Text& format, const CallArguments& arguments, Budget* budget) {
  const std::string_view text = format.bytes();
  Formatted out(budget);
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
      out.Append(PlacedArgument(arguments, next++));
    } else if (IsDigits(field)) {
      out.Append(PlacedArgument(arguments, std::stoul(std::string(field))));
    } else {
      out.Append(NamedArgument(arguments, field));
    }
    at = end + 1;
  }
  return out.Take();
}

Text FormatPercent(const Text& format, const CallArguments& arguments, Budget* budget) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    throw TemplateError("format: arguments with and without names");
  }
  const std::string_view text = format.bytes();
  Formatted out(budget);
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.Append(format.Substr(at, percent - at));
    if (percent == text.size()) break;
    size_t place = percent + 1;
    std::optional<std::string_view> name;
    if (text.substr(place, 1) == "(") {
      const size_t end = text.find(')', place);
      if (end == std::string_view::npos) throw TemplateError("format: a name without its end");
      name = text.substr(place + 1, end - place - 1);
      place = end + 1;
    }
    const std::string_view type = text.substr(place, 1);
    if (type == "%" && !name.has_value()) {
      out.Append(format.Substr(place, 1));
    } else if (type == "s" || type == "d" || type == "i") {
      const Value& value =
          name.has_value() ? NamedArgument(arguments, *name) : PlacedArgument(arguments, next++);
      out.Append(type == "s" ? value : WholeNumber(value));
    } else {
      throw TemplateError("format: %" + std::string(type) + " is not supported; %s and %d are");
    }
    at = place + 1;
  }
  if (next < arguments.positional.size()) throw TemplateError("format: too many arguments");
  return out.Take();
}

}  // namespace refrain::engine::jinja
