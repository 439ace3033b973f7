#ifndef REFRAIN_ENGINE_TEXT_JINJA_LEXER_H_
#define REFRAIN_ENGINE_TEXT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace refrain::engine::jinja {

struct Token {
  enum class Kind {
    kText,        // output as it is
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,  // text: without quotes, escapes resolved
    kInteger,
    kFloat,
    kOperator,  // text: the operator
    kEnd,
  };
  Kind kind;
  std::string text;
  int line;
};

// Template source to tokens with the white space rules of `trim_blocks` and `lstrip_blocks`, under
// which models publish their templates. Comments are gone, `raw` blocks have become text. The last
// token is kEnd. Throws TemplateError with the line.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_LEXER_H_
