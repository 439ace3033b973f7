#include "engine/text/jinja/string_functions.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/utf8.h"

namespace refrain::engine::jinja {
namespace {

// In linear time, which std::string::find does not promise. Of one byte it does; and under ASan
// memmem looks at all of the text at every call.
size_t Find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.size() == 1) return text.find(needle.front(), from);
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

struct Piece {
  size_t begin;
  size_t end;
};

// The places of a separator, or of runs of white space.
std::vector<Piece> FindSeparators(std::string_view text,
                                  std::optional<std::string_view> separator) {
  std::vector<Piece> found;
  if (separator.has_value()) {
    for (size_t at = 0; (at = Find(text, *separator, at)) != std::string_view::npos;) {
      found.push_back({at, at + separator->size()});
      at += separator->size();
    }
    return found;
  }
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = FirstUtf8Unit(text.substr(at));
    if (IsWhiteSpace(unit.code_point) && unit.kind == Utf8Unit::Kind::kCharacter) {
      if (!found.empty() && found.back().end == at) {
        found.back().end = at + unit.size_bytes;
      } else {
        found.push_back({at, at + unit.size_bytes});
      }
    }
    at += unit.size_bytes;
  }
  return found;
}

}  // namespace

Value::List SplitText(const Text& text, std::optional<std::string_view> separator,
                      int64_t max_splits, bool from_right, Budget* budget) {
  if (separator.has_value() && separator->empty()) throw TemplateError("empty separator");
  budget->Bytes(text.size());
  Text stripped;
  const Text* source = &text;
  if (!separator.has_value()) {
    // White space at the ends separates nothing; what a limit leaves over keeps its far end.
    stripped = Strip(text, from_right ? Side::kRight : Side::kLeft);
    if (max_splits < 0) stripped = Strip(stripped, Side::kBoth);
    source = &stripped;
    if (source->size() == 0) return {};
  }
  std::vector<Piece> separators = FindSeparators(source->bytes(), separator);
  const size_t limit = max_splits < 0 ? separators.size() : static_cast<size_t>(max_splits);
  if (separators.size() > limit) {
    if (from_right) separators.erase(separators.begin(), separators.end() - limit);
    separators.resize(limit);
  }
  budget->List(separators.size() + 1);
  Value::List parts;
  size_t begin = 0;
  for (const Piece& piece : separators) {
    parts.push_back(Value::String(source->Substr(begin, piece.begin - begin)));
    begin = piece.end;
  }
  const bool nothing_left = !separator.has_value() && begin == source->size();
  if (!nothing_left) parts.push_back(Value::String(source->Substr(begin, source->size() - begin)));
  if (!separator.has_value() && !parts.empty() && parts.front().AsText().size() == 0) {
    parts.erase(parts.begin());
  }
  return parts;
}

Value::List SplitLines(const Text& text, bool keep_ends, Budget* budget) {
  budget->Bytes(text.size());
  const std::string& bytes = text.bytes();
  Value::List lines;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find_first_of("\n\r\v\f", begin), bytes.size());
    size_t next = std::min(end + 1, bytes.size());
    if (end + 1 < bytes.size() && bytes[end] == '\r' && bytes[end + 1] == '\n') ++next;
    budget->List(1);
    lines.push_back(Value::String(text.Substr(begin, (keep_ends ? next : end) - begin)));
    begin = next;
  }
  return lines;
}

Text ReplaceText(const Text& text, std::string_view from, const Text& to, int64_t max_count,
                 Budget* budget) {
  budget->Bytes(text.size() + from.size());
  Text out;
  size_t at = 0;
  const auto append = [&](const Text& part) {
    budget->String(out.size() + part.size() > Budget::kMaxStringBytes ? out.size() + part.size()
                                                                      : part.size());
    out.Append(part);
  };
  for (int64_t count = 0; max_count < 0 || count < max_count; ++count) {
    if (from.empty()) {
      // Between all characters, and at both ends.
      append(to);
      if (at == text.size()) return out;
      const size_t size_bytes = FirstUtf8Unit(std::string_view(text.bytes()).substr(at)).size_bytes;
      append(text.Substr(at, size_bytes));
      at += size_bytes;
      continue;
    }
    const size_t found = Find(text.bytes(), from, at);
    if (found == std::string_view::npos) break;
    append(text.Substr(at, found - at));
    append(to);
    at = found + from.size();
  }
  append(text.Substr(at, text.size() - at));
  return out;
}

Text IndentText(const Text& text, const Text& indent, bool first, bool blank, Budget* budget) {
  Text out;
  bool is_first = true;
  for (const Value& line : SplitLines(text, /*keep_ends=*/true, budget)) {
    const bool is_blank = Strip(line.AsText(), Side::kBoth).size() == 0;
    if ((!is_first || first) && (!is_blank || blank)) {
      budget->String(out.size() + indent.size() > Budget::kMaxStringBytes
                         ? out.size() + indent.size()
                         : indent.size());
      out.Append(indent);
    }
    budget->Bytes(line.AsText().size());
    out.Append(line.AsText());
    is_first = false;
  }
  return out;
}

Text EscapeHtml(const Text& text, Budget* budget) {
  budget->String(6 * text.size());
  std::string out;
  for (const char c : text.bytes()) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return MarkedLike(text, std::move(out));
}

}  // namespace refrain::engine::jinja
