// str(), repr() and JSON: values to text.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/utf8.h"

namespace refrain::engine::jinja {
namespace {

using Kind = Value::Kind;

// Appends with the size of the whole checked, so that shared values that print exponentially long
// end in an error early.
class Writer {
 public:
  explicit Writer(Budget* budget) : budget_(budget) {}

  void Add(std::string_view bytes, bool from_request = false) {
    budget_->Bytes(bytes.size() + 1);
    out_.Append(bytes, from_request);
    if (out_.size() > Budget::kMaxStringBytes) budget_->String(out_.size());
  }
  void Add(const Text& text) {
    budget_->Bytes(text.size() + 1);
    out_.Append(text);
    if (out_.size() > Budget::kMaxStringBytes) budget_->String(out_.size());
  }
  Text Take() { return std::move(out_); }
  Budget* budget() { return budget_; }

 private:
  Budget* budget_;
  Text out_;
};

std::string Hex(const char* format, uint32_t number) {
  std::array<char, 16> buffer = {};
  std::snprintf(buffer.data(), buffer.size(), format, number);
  return buffer.data();
}

// Whether Python's repr() escapes the character: separators, controls, formats, what is unassigned
// only as far as the first two ranges of each plane need it.
bool IsPrintable(uint32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (c == 0x1680 || (c >= 0x2000 && c <= 0x200F) || (c >= 0x2028 && c <= 0x202F)) return false;
  if ((c >= 0x205F && c <= 0x206F) || c == 0x3000 || c == 0xFEFF) return false;
  return !(c >= 0xE000 && c <= 0xF8FF) && !(c >= 0xFFF0 && c <= 0xFFFB) && c < 0xE0000;
}

void WriteStringRepr(const Text& text, Writer* writer) {
  const std::string& bytes = text.bytes();
  const bool double_quotes =
      bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Unit unit = FirstUtf8Unit(rest);
    const uint32_t c = unit.code_point;
    if (unit.kind != Utf8Unit::Kind::kCharacter) {
      out += rest.substr(0, unit.size_bytes);
    } else if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (!IsPrintable(c)) {
      out += Hex(c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    } else {
      out += rest.substr(0, unit.size_bytes);
    }
    rest.remove_prefix(unit.size_bytes);
  }
  out.push_back(quote);
  if (text.is_html()) out = "Markup(" + out + ")";
  writer->Add(out, text.HasMarks());
}

void WriteRepr(const Value& value, Writer* writer);

void WriteScalar(const Value& value, Writer* writer) {
  switch (value.kind()) {
    case Kind::kNone:
      return writer->Add("None");
    case Kind::kBool:
      return writer->Add(value.AsBool() ? "True" : "False");
    case Kind::kInt:
      return writer->Add(std::to_string(value.AsInt()));
    case Kind::kFloat:
      return writer->Add(value.big_int() != 0 ? std::to_string(value.big_int())
                                              : FloatText(value.AsFloat()));
    case Kind::kObject:
      writer->Add("<");
      writer->Add(value.AsObject()->type_name());
      return writer->Add(">");
    default:
      return;
  }
}

void WriteRepr(const Value& value, Writer* writer) {
  if (value.is_string()) return WriteStringRepr(value.AsText(), writer);
  if (value.is_undefined()) return writer->Add("Undefined");
  if (value.is_list()) {
    writer->Add(value.is_tuple() ? "(" : "[");
    bool is_first = true;
    for (const Value& item : value.AsList()) {
      if (!std::exchange(is_first, false)) writer->Add(", ");
      WriteRepr(item, writer);
    }
    if (value.is_tuple() && value.AsList().size() == 1) writer->Add(",");
    return writer->Add(value.is_tuple() ? ")" : "]");
  }
  if (value.is_map()) {
    writer->Add("{");
    bool is_first = true;
    for (const Map::Entry& entry : value.AsMap().entries()) {
      if (!std::exchange(is_first, false)) writer->Add(", ");
      WriteRepr(entry.key, writer);
      writer->Add(": ");
      WriteRepr(entry.value, writer);
    }
    return writer->Add("}");
  }
  WriteScalar(value, writer);
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Writer* writer) : style_(style), writer_(writer) {}

  void Write(const Value& value, int level) {
    switch (value.kind()) {
      case Kind::kUndefined:
        throw TemplateError("'" + std::string(value.undefined_what()) +
                            "' is undefined and cannot become JSON");
      case Kind::kObject:
        throw TemplateError("a value of type " + std::string(TypeName(value)) +
                            " cannot become JSON");
      case Kind::kNone:
        return writer_->Add("null");
      case Kind::kBool:
        return writer_->Add(value.AsBool() ? "true" : "false");
      case Kind::kFloat:
        if (value.big_int() != 0) return writer_->Add(std::to_string(value.big_int()));
        return WriteFloat(value.AsFloat());
      case Kind::kString:
        return WriteString(value.AsText());
      case Kind::kList:
        return WriteList(value.AsList(), level);
      case Kind::kMap:
        return WriteMap(value.AsMap(), level);
      case Kind::kInt:
        return WriteScalar(value, writer_);
    }
  }

 private:
  void WriteFloat(double number) {
    if (std::isnan(number)) return writer_->Add("NaN");
    if (std::isinf(number)) return writer_->Add(number > 0 ? "Infinity" : "-Infinity");
    writer_->Add(FloatText(number));
  }

  void WriteString(const Text& text) {
    std::string out = "\"";
    for (std::string_view rest = text.bytes(); !rest.empty();) {
      const Utf8Unit unit = FirstUtf8Unit(rest);
      const uint32_t c = unit.code_point;
      static constexpr std::string_view kNamed = "\"\\\n\r\t\b\f";
      static constexpr std::string_view kNames = "\"\\nrtbf";
      const size_t named = c < 0x80 && unit.kind == Utf8Unit::Kind::kCharacter
                               ? kNamed.find(static_cast<char>(c))
                               : std::string_view::npos;
      if (unit.kind != Utf8Unit::Kind::kCharacter) {
        out += rest.substr(0, unit.size_bytes);
      } else if (named != std::string_view::npos) {
        out += {'\\', kNames[named]};
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
        out += Hex("\\u%04x", c);
      } else if (style_.ensure_ascii && c >= 0x10000) {
        out += Hex("\\u%04x", 0xD800 + ((c - 0x10000) >> 10));
        out += Hex("\\u%04x", 0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        out += rest.substr(0, unit.size_bytes);
      }
      rest.remove_prefix(unit.size_bytes);
    }
    out.push_back('"');
    writer_->Add(out, text.HasMarks());
  }

  void NewLine(int level) {
    if (!style_.indent.has_value()) return;
    writer_->Add("\n");
    for (int i = 0; i < level; ++i) writer_->Add(*style_.indent);
  }

  void WriteList(const Value::List& items, int level) {
    if (items.empty()) return writer_->Add("[]");
    writer_->Add("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) writer_->Add(style_.item_separator);
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    NewLine(level);
    writer_->Add("]");
  }

  void WriteMap(const Map& map, int level) {
    if (map.size() == 0) return writer_->Add("{}");
    std::vector<const Map::Entry*> entries;
    for (const Map::Entry& entry : map.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [this](const auto* a, const auto* b) {
        return Compare(a->key, b->key, writer_->budget()) < 0;
      });
    }
    writer_->Add("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) writer_->Add(style_.item_separator);
      NewLine(level + 1);
      WriteKey(entries[i]->key);
      writer_->Add(style_.key_separator);
      Write(entries[i]->value, level + 1);
    }
    NewLine(level);
    writer_->Add("}");
  }

  void WriteKey(const Value& key) {
    if (key.is_string()) return WriteString(key.AsText());
    writer_->Add("\"");
    Write(key, 0);
    writer_->Add("\"");
  }

  const JsonStyle& style_;
  Writer* writer_;
};

}  // namespace

std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer;
  const double magnitude = std::fabs(number);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                    plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), result.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

Text ToText(const Value& value, Budget* budget) {
  if (value.is_string()) return value.AsText();
  if (value.is_undefined()) return Text();
  return Repr(value, budget);
}

Text Repr(const Value& value, Budget* budget) {
  Writer writer(budget);
  WriteRepr(value, &writer);
  return writer.Take();
}

Text ToJson(const Value& value, const JsonStyle& style, Budget* budget) {
  Writer writer(budget);
  JsonWriter(style, &writer).Write(value, 0);
  return writer.Take();
}

}  // namespace refrain::engine::jinja
