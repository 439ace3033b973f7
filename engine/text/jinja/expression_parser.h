#ifndef REFRAIN_ENGINE_TEXT_JINJA_EXPRESSION_PARSER_H_
#define REFRAIN_ENGINE_TEXT_JINJA_EXPRESSION_PARSER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/call_check.h"
#include "engine/text/jinja/lexer.h"

namespace refrain::engine::jinja {

// Position in the tokens of a template and the grammar of expressions (precedence as in jinja2).
// Used by the statement parser. Throws TemplateError.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  Token Take();
  bool IsOperator(std::string_view text) const;
  bool IsName(std::string_view text) const;
  bool TakeOperator(std::string_view text);
  bool TakeName(std::string_view text);
  void ExpectOperator(std::string_view text);
  std::string ExpectName();
  void ExpectKind(Token::Kind kind, std::string_view what);
  [[noreturn]] void Fail(const std::string& what) const;  // at the current token

  ExpressionPtr ParseExpression();  // with `a if b else c`
  ExpressionPtr ParseWithoutConditional();
  // One expression, or several with commas as a tuple.
  ExpressionPtr ParseTuple(bool with_conditional);
  // `name(arguments) | name ...` on `input`.
  ExpressionPtr ParseFilterChain(ExpressionPtr input);
  void ParseArguments(Expression* call);

  // What statements add to it, and check at the template's end.
  CallCheck& calls() { return calls_; }

 private:
  class DepthGuard;

  [[noreturn]] static void FailAt(int line, const std::string& what);
  static void CheckWhatItApplies(const Expression& filter);
  ExpressionPtr New(Expression::Kind kind) const;
  void Adopt(ExpressionPtr child, Expression* parent) const;
  ExpressionPtr NewBinary(Operator op, ExpressionPtr left, ExpressionPtr right) const;
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseComparison();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseNamePrimary();
  ExpressionPtr ParsePostfix(ExpressionPtr expression);
  ExpressionPtr ParseFiltersAndTests(ExpressionPtr expression);
  ExpressionPtr ParseFilter(ExpressionPtr input);
  ExpressionPtr ParseTest(ExpressionPtr input);
  ExpressionPtr ParseSubscript(ExpressionPtr object);
  ExpressionPtr ParseListLiteral();
  ExpressionPtr ParseMapLiteral();
  ExpressionPtr ParseCall(ExpressionPtr callee);
  bool StartsTestArgument() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  CallCheck calls_;
};

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_EXPRESSION_PARSER_H_
