#include "engine/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/expression_parser.h"
#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/template_error.h"

namespace refrain::engine::jinja {
namespace {

constexpr int kMaxBlockDepth = 50;
constexpr size_t kMaxSourceBytes = 1 << 20;

using Kind = Statement::Kind;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : in_(std::move(tokens)) {}

  Block Parse() {
    Block block = ParseUntil({});
    if (in_.current().kind != Token::Kind::kEnd) in_.Fail("unexpected end of a block");
    in_.calls().Check();
    return block;
  }

 private:
  static std::unique_ptr<Statement> New(Kind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  void ExpectBlockEnd() { in_.ExpectKind(Token::Kind::kBlockEnd, "%}"); }

  // Statements up to a tag that begins with one of `ends`; that tag's {% is taken, its name is the
  // current token. Without ends: up to the end of the template.
  Block ParseUntil(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kMaxBlockDepth) {
      in_.Fail("blocks nested deeper than " + std::to_string(kMaxBlockDepth));
    }
    Block block;
    for (;;) {
      const Token token = in_.current();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() > 0) in_.Fail("missing " + std::string(*(ends.end() - 1)));
        break;
      }
      in_.Take();
      if (token.kind == Token::Kind::kText) {
        block.push_back(New(Kind::kText, token.line));
        block.back()->text = token.text;
      } else if (token.kind == Token::Kind::kPrintBegin) {
        block.push_back(New(Kind::kPrint, token.line));
        block.back()->expression = in_.ParseTuple(/*with_conditional=*/true);
        in_.ExpectKind(Token::Kind::kPrintEnd, "}}");
      } else {
        const auto is_current = [this](std::string_view name) { return in_.IsName(name); };
        if (std::any_of(ends.begin(), ends.end(), is_current)) break;
        block.push_back(ParseStatement(token.line));
      }
    }
    --depth_;
    return block;
  }

  // The body of a block that ends with `end`, which is taken.
  Block ParseBody(std::string_view end) {
    Block body = ParseUntil({end});
    in_.Take();
    ExpectBlockEnd();
    return body;
  }

  std::unique_ptr<Statement> ParseStatement(int line) {
    if (in_.TakeName("if")) return ParseIf(line);
    if (in_.TakeName("for")) return ParseFor(line);
    if (in_.TakeName("set")) return ParseSet(line);
    if (in_.TakeName("macro")) return ParseMacro(line);
    if (in_.TakeName("filter")) return ParseFilterBlock(line);
    if (in_.TakeName("with")) return ParseWith(line);
    if (in_.TakeName("generation")) {
      auto group = New(Kind::kGroup, line);
      ExpectBlockEnd();
      const int outer_loops = std::exchange(loop_depth_, 0);  // for jinja2 it is a macro
      group->body = ParseBody("endgeneration");
      loop_depth_ = outer_loops;
      return group;
    }
    for (const bool is_break : {true, false}) {
      if (!in_.IsName(is_break ? "break" : "continue")) continue;
      if (loop_depth_ == 0) in_.Fail("outside of a loop");
      in_.Take();
      ExpectBlockEnd();
      return New(is_break ? Kind::kBreak : Kind::kContinue, line);
    }
    in_.Fail("this statement is not supported");
  }

  std::unique_ptr<Statement> ParseIf(int line) {
    auto statement = New(Kind::kIf, line);
    for (;;) {
      Statement::Branch branch;
      branch.condition = in_.ParseTuple(/*with_conditional=*/true);
      ExpectBlockEnd();
      branch.body = ParseUntil({"elif", "else", "endif"});
      statement->branches.push_back(std::move(branch));
      if (!in_.TakeName("elif")) break;
    }
    if (in_.TakeName("else")) {
      ExpectBlockEnd();
      statement->otherwise = ParseUntil({"endif"});
    }
    in_.Take();
    ExpectBlockEnd();
    return statement;
  }

  std::unique_ptr<Statement> ParseFor(int line) {
    auto statement = New(Kind::kFor, line);
    statement->target = ParseTarget(/*may_be_attribute=*/false);
    if (!in_.TakeName("in")) in_.Fail("expected 'in'");
    statement->expression = in_.ParseTuple(/*with_conditional=*/false);
    if (in_.TakeName("if")) statement->condition = in_.ParseExpression();
    if (in_.IsName("recursive")) in_.Fail("recursive loops are not supported");
    ExpectBlockEnd();
    ++loop_depth_;
    statement->body = ParseUntil({"else", "endfor"});
    --loop_depth_;
    if (in_.TakeName("else")) {
      ExpectBlockEnd();
      statement->otherwise = ParseUntil({"endfor"});
    }
    in_.Take();
    ExpectBlockEnd();
    return statement;
  }

  Target ParseTarget(bool may_be_attribute) {
    Target target;
    const bool in_parentheses = in_.TakeOperator("(");
    target.names.push_back(ExpectTargetName());
    if (may_be_attribute && in_.TakeOperator(".")) {
      target.attribute = in_.ExpectName();
      in_.calls().MeetEntry(target.attribute);
      return target;
    }
    while (in_.TakeOperator(",")) {
      target.unpacks = true;
      if (in_.current().kind != Token::Kind::kName || in_.IsName("in")) break;
      target.names.push_back(ExpectTargetName());
    }
    if (in_parentheses) in_.ExpectOperator(")");
    return target;
  }

  std::string ExpectTargetName() {
    for (const std::string_view name : {"true", "false", "none", "True", "False", "None", "loop"}) {
      if (in_.IsName(name)) in_.Fail("cannot be assigned to");
    }
    std::string name = in_.ExpectName();
    in_.calls().MeetVariable(name);
    return name;
  }

  std::unique_ptr<Statement> ParseSet(int line) {
    auto statement = New(Kind::kSet, line);
    statement->target = ParseTarget(/*may_be_attribute=*/true);
    if (in_.TakeOperator("=")) {
      statement->expression = in_.ParseTuple(/*with_conditional=*/true);
      ExpectBlockEnd();
      return statement;
    }
    statement->kind = Kind::kSetBlock;
    if (in_.TakeOperator("|")) statement->expression = in_.ParseFilterChain(FilterInput(line));
    ExpectBlockEnd();
    statement->body = ParseBody("endset");
    return statement;
  }

  static ExpressionPtr FilterInput(int line) {
    auto input = std::make_unique<Expression>();
    input->kind = Expression::Kind::kName;
    input->name = kFilterInput;
    input->line = line;
    return input;
  }

  std::unique_ptr<Statement> ParseFilterBlock(int line) {
    auto statement = New(Kind::kFilter, line);
    statement->expression = in_.ParseFilterChain(FilterInput(line));
    ExpectBlockEnd();
    statement->body = ParseBody("endfilter");
    return statement;
  }

  std::unique_ptr<Statement> ParseMacro(int line) {
    auto statement = New(Kind::kMacro, line);
    statement->text = ExpectTargetName();
    in_.ExpectOperator("(");
    while (!in_.TakeOperator(")")) {
      if (!statement->parameters.empty()) {
        in_.ExpectOperator(",");
        if (in_.TakeOperator(")")) break;
      }
      Parameter parameter;
      parameter.name = ExpectTargetName();
      if (in_.TakeOperator("=")) {
        parameter.fallback = in_.ParseExpression();
      } else if (!statement->parameters.empty() &&
                 statement->parameters.back().fallback != nullptr) {
        in_.Fail("parameter without a default behind one with");
      }
      statement->parameters.push_back(std::move(parameter));
    }
    ExpectBlockEnd();
    const int outer_loops = std::exchange(loop_depth_, 0);
    in_.calls().EnterMacro();
    statement->body = ParseBody("endmacro");
    in_.calls().LeaveMacro();
    loop_depth_ = outer_loops;
    return statement;
  }

  std::unique_ptr<Statement> ParseWith(int line) {
    auto statement = New(Kind::kWith, line);
    while (in_.current().kind != Token::Kind::kBlockEnd) {
      if (!statement->assignments.empty()) in_.ExpectOperator(",");
      std::string name = ExpectTargetName();
      in_.ExpectOperator("=");
      statement->assignments.emplace_back(std::move(name), in_.ParseExpression());
    }
    ExpectBlockEnd();
    statement->body = ParseBody("endwith");
    return statement;
  }

  ExpressionParser in_;
  int depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Block ParseTemplate(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    throw TemplateError("the template has " + std::to_string(source.size()) +
                        " bytes, more than the limit of " + std::to_string(kMaxSourceBytes));
  }
  return StatementParser(Tokenize(source)).Parse();
}

}  // namespace refrain::engine::jinja
