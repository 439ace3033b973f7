#ifndef REFRAIN_ENGINE_TEXT_JINJA_STRING_FUNCTIONS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_STRING_FUNCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/call_arguments.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// Python's string methods that filters share. Cuts keep the marks of their source byte for byte.
// Results are HTML (Text::is_html) only where that is said.

// Where the first or the last `wanted` begins, or npos. In linear time.
size_t FindText(std::string_view text, std::string_view wanted, bool from_right);

// Negative `max_splits`: no limit. Without separator: at runs of white space.
Value::List SplitText(const Text& text, std::optional<std::string_view> separator,
                      int64_t max_splits, bool from_right, Budget* budget);
Value::List SplitLines(const Text& text, bool keep_ends, Budget* budget);

// Negative `max_count`: no limit.
Text ReplaceText(const Text& text, std::string_view from, const Text& to, int64_t max_count,
                 Budget* budget);

// Every line but the first (or also that one) gets `indent` in front, unless it is empty (or also
// then). Line ends become \n.
Text IndentText(const Text& text, const Text& indent, bool first, bool blank, Budget* budget);

// str.format of fields `{}`, `{0}` and `{name}`; other fields are not supported. Here and in the
// next an HTML format escapes its arguments and gives HTML.
Text FormatFields(const Text& format, const CallArguments& arguments, Budget* budget);
// Python's `format % arguments`: a tuple's elements one after the other, or one value, or by name
// those of a mapping; flags, width and precision too. Of the conversions `%a` is not supported, nor
// `#` with `%g`, nor integers beyond 64 bits.
Text FormatPercent(const Text& format, const Value& arguments, Budget* budget);

// In characters: what is more than `leeway` longer than `length` is cut to that, with `end`; at a
// space unless `inside_words`. Adds as AddTexts does.
Text TruncateText(const Text& text, int64_t length, bool inside_words, const Text& end,
                  int64_t leeway, Budget* budget);

// With zeros to a width in characters, behind a sign.
Text ZeroFill(const Text& text, int64_t width, Budget* budget);

// As HTML; what is HTML is as it was.
Text EscapeHtml(const Text& text, Budget* budget);

// Python's a + b: where one is HTML, the other is escaped, and the whole is HTML.
Text AddTexts(const Text& a, const Text& b, Budget* budget);

// What was made of `source`, a text or a list of texts: HTML where that is, too.
Value HtmlLike(const Text& source, Value made, Budget* budget);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_STRING_FUNCTIONS_H_
