#include "engine/text/jinja/string_functions.h"

#include <algorithm>
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
std::vector<Piece> FindSeparators(std::string_view text, std::optional<std::string_view> separator,
                                  bool from_right) {
  std::vector<Piece> found;
  if (separator.has_value() && from_right) {
    // Which of two that overlap is one depends on the side: what is mirrored is found from the
    // left.
    const std::string mirrored(text.rbegin(), text.rend());
    const std::string wanted(separator->rbegin(), separator->rend());
    for (const Piece& piece : FindSeparators(mirrored, wanted, /*from_right=*/false)) {
      found.push_back({text.size() - piece.end, text.size() - piece.begin});
    }
    std::reverse(found.begin(), found.end());
    return found;
  }
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

// Bytes of the line end of Python's str.splitlines() at the begin of `rest`; 0: there is none.
size_t LineEndBytes(std::string_view rest) {
  if (rest.empty()) return 0;
  const auto c = static_cast<uint8_t>(rest[0]);
  if (c == '\r') return rest.size() > 1 && rest[1] == '\n' ? 2 : 1;
  if ((c >= '\n' && c <= '\f') || (c >= 0x1C && c <= 0x1E)) return 1;
  if (rest.starts_with("\xC2\x85")) return 2;
  return rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9") ? 3 : 0;
}

// Where the next line end begins, or the end of the text.
size_t FindLineEnd(std::string_view text, size_t from) {
  while (from < text.size() && LineEndBytes(text.substr(from)) == 0) ++from;
  return from;
}

// What stands for a character in HTML; empty: itself.
std::string_view EntityOf(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&#34;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

// Where the last character of a text that is not empty begins.
size_t LastCharacter(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

size_t FindText(std::string_view text, std::string_view wanted, bool from_right) {
  if (!from_right) return Find(text, wanted, 0);
  const std::string mirrored(text.rbegin(), text.rend());
  const size_t at = Find(mirrored, std::string(wanted.rbegin(), wanted.rend()), 0);
  return at == std::string_view::npos ? at : text.size() - at - wanted.size();
}

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
  std::vector<Piece> separators = FindSeparators(source->bytes(), separator, from_right);
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
    const size_t end = FindLineEnd(bytes, begin);
    const size_t next = end + LineEndBytes(std::string_view(bytes).substr(end));
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
  Value::List lines = SplitLines(text, /*keep_ends=*/false, budget);
  // With a line end put behind the text first, as jinja2 does: one at its end begins a line.
  const std::string_view bytes = text.bytes();
  // A carriage return and that are one.
  const auto ends_line = [&] {
    return !bytes.ends_with('\r') && FindLineEnd(bytes, LastCharacter(bytes)) < bytes.size();
  };
  if (bytes.empty() || ends_line()) {
    lines.push_back(Value::String(std::string()));
  }
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Text& line = lines[i].AsText();
    if (i > 0) out.Append("\n");
    if (i == 0 ? first : blank || line.size() > 0) {
      budget->String(out.size() + indent.size() > Budget::kMaxStringBytes
                         ? out.size() + indent.size()
                         : indent.size());
      out.Append(indent);
    }
    budget->Bytes(line.size());
    out.Append(line);
  }
  return out;
}

Text TruncateText(const Text& text, int64_t length, bool inside_words, const Text& end,
                  int64_t leeway, Budget* budget) {
  budget->Bytes(9 * text.size());
  const std::vector<size_t> offsets = CharacterOffsets(text.bytes());
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  const auto end_size = static_cast<int64_t>(CountCharacters(end.bytes()));
  if (length < end_size) throw TemplateError("truncate: the length is less than that of the end");
  if (leeway < 0) throw TemplateError("truncate: the leeway is negative");
  if (size <= length || size - length <= leeway) return text;
  Text out = text.Substr(0, offsets[length - end_size]);
  const size_t space = inside_words ? std::string::npos : out.bytes().rfind(' ');
  if (space != std::string::npos) out = out.Substr(0, space);
  out.set_is_html(text.is_html());
  return AddTexts(out, end, budget);
}

Text ZeroFill(const Text& text, int64_t width, Budget* budget) {
  const auto size = static_cast<int64_t>(CountCharacters(text.bytes()));
  if (width <= size) return text;
  budget->String(static_cast<size_t>(width - size) + text.size());
  const size_t sign = text.bytes().starts_with('-') || text.bytes().starts_with('+') ? 1 : 0;
  Text out = text.Substr(0, sign);
  out.Append(std::string(static_cast<size_t>(width - size), '0'));
  out.Append(text.Substr(sign, text.size()));
  return out;
}

Text EscapeHtml(const Text& text, Budget* budget) {
  if (text.is_html()) return text;
  budget->String(6 * text.size());
  const std::string& bytes = text.bytes();
  Text out;
  size_t copied = 0;  // so many bytes of `text` are in `out`
  auto mark = text.marks().begin();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string_view entity = EntityOf(bytes[i]);
    if (entity.empty()) continue;
    while (mark != text.marks().end() && mark->end_byte <= i) ++mark;
    out.Append(text.Substr(copied, i - copied));
    out.Append(entity, mark != text.marks().end() && mark->begin_byte <= i);
    copied = i + 1;
  }
  out.Append(text.Substr(copied, bytes.size() - copied));
  out.set_is_html(true);
  return out;
}

Text AddTexts(const Text& a, const Text& b, Budget* budget) {
  const bool is_html = a.is_html() || b.is_html();
  Text sum = is_html ? EscapeHtml(a, budget) : a;
  const Text escaped = is_html ? EscapeHtml(b, budget) : Text();
  const Text& added = is_html ? escaped : b;
  budget->String(sum.size() + added.size());
  sum.Append(added);
  return sum;
}

Value HtmlLike(const Text& source, Value made, Budget* budget) {
  if (!source.is_html()) return made;
  if (made.is_list()) {
    budget->List(made.AsList().size());
    Value::List items;
    for (const Value& item : made.AsList()) items.push_back(HtmlLike(source, item, budget));
    return Value::MakeList(std::move(items));
  }
  if (!made.is_string() || made.AsText().is_html()) return made;
  budget->String(made.AsText().size());
  Text text = made.AsText();
  text.set_is_html(true);
  return Value::String(std::move(text));
}

}  // namespace refrain::engine::jinja
