#ifndef REFRAIN_ENGINE_GRAMMAR_STRING_FORMATS_H_
#define REFRAIN_ENGINE_GRAMMAR_STRING_FORMATS_H_

#include <optional>
#include <string_view>

namespace refrain::engine {

// A `format` of JSON Schema that strings are held to.
struct StringFormat {
  std::string_view name;
  // The regular expression of all of the string, in characters that stand unescaped in JSON.
  // Everything that it describes has the format; not everything that has the format is described:
  // years are from 1000 on, fractions of a second have at most six digits, names of hosts are
  // short and in ASCII.
  std::string_view pattern;
  int shortest = 0;  // that is described, in characters
  std::optional<int> longest;
  // The same where the whole string has at most kShortBytes: pieces need not be counted then.
  // Empty: there is no such expression.
  std::string_view short_pattern;

  static constexpr int kShortBytes = 64;
};

// Null: the format is not known, and says nothing.
const StringFormat* FindStringFormatOrNull(std::string_view name);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_STRING_FORMATS_H_
