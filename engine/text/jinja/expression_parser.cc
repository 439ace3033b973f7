#include "engine/text/jinja/expression_parser.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/jinja/value_tests.h"

namespace refrain::engine::jinja {
namespace {

// Bounds the recursion of parser and interpreter; models' templates stay below 20.
constexpr int kMaxDepth = 150;

using Kind = Expression::Kind;

}  // namespace

class ExpressionParser::DepthGuard {
 public:
  explicit DepthGuard(ExpressionParser* parser) : parser_(parser) {
    if (++parser_->depth_ > kMaxDepth) {
      parser_->Fail("expression nested deeper than " + std::to_string(kMaxDepth));
    }
  }
  ~DepthGuard() { --parser_->depth_; }

 private:
  ExpressionParser* parser_;
};

Token ExpressionParser::Take() {
  Token token = tokens_[at_];
  if (token.kind != Token::Kind::kEnd) ++at_;
  return token;
}

bool ExpressionParser::IsOperator(std::string_view text) const {
  return current().kind == Token::Kind::kOperator && current().text == text;
}

bool ExpressionParser::IsName(std::string_view text) const {
  return current().kind == Token::Kind::kName && current().text == text;
}

bool ExpressionParser::TakeOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  ++at_;
  return true;
}

bool ExpressionParser::TakeName(std::string_view text) {
  if (!IsName(text)) return false;
  ++at_;
  return true;
}

void ExpressionParser::ExpectOperator(std::string_view text) {
  if (!TakeOperator(text)) Fail("expected '" + std::string(text) + "'");
}

std::string ExpressionParser::ExpectName() {
  if (current().kind != Token::Kind::kName) Fail("expected a name");
  return Take().text;
}

void ExpressionParser::ExpectKind(Token::Kind kind, std::string_view what) {
  if (current().kind != kind) Fail("expected " + std::string(what));
  ++at_;
}

void ExpressionParser::Fail(const std::string& what) const {
  std::string message = what;
  if (!current().text.empty()) message += " at '" + current().text.substr(0, 40) + "'";
  FailAt(current().line, message);
}

void ExpressionParser::FailAt(int line, const std::string& what) {
  throw TemplateError("line " + std::to_string(line) + ": " + what);
}

ExpressionPtr ExpressionParser::New(Kind kind) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = current().line;
  return expression;
}

// A chain `a + b + c ...` nests as deep as it is long, whatever the parser's own recursion.
void ExpressionParser::Adopt(ExpressionPtr child, Expression* parent) const {
  if (child != nullptr) {
    parent->depth = std::max(parent->depth, 1 + child->depth);
    if (parent->depth > kMaxDepth) {
      Fail("expression nested deeper than " + std::to_string(kMaxDepth));
    }
  }
  parent->operands.push_back(std::move(child));
}

ExpressionPtr ExpressionParser::NewBinary(Operator op, ExpressionPtr left,
                                          ExpressionPtr right) const {
  ExpressionPtr expression = New(Kind::kBinary);
  expression->op = op;
  Adopt(std::move(left), expression.get());
  Adopt(std::move(right), expression.get());
  return expression;
}

ExpressionPtr ExpressionParser::ParseExpression() {
  const DepthGuard guard(this);
  ExpressionPtr expression = ParseOr();
  while (TakeName("if")) {
    ExpressionPtr conditional = New(Kind::kConditional);
    Adopt(ParseOr(), conditional.get());
    Adopt(std::move(expression), conditional.get());
    if (TakeName("else")) Adopt(ParseExpression(), conditional.get());
    expression = std::move(conditional);
  }
  return expression;
}

ExpressionPtr ExpressionParser::ParseWithoutConditional() {
  const DepthGuard guard(this);
  return ParseOr();
}

ExpressionPtr ExpressionParser::ParseTuple(bool with_conditional) {
  const auto parse_item = [&] {
    return with_conditional ? ParseExpression() : ParseWithoutConditional();
  };
  ExpressionPtr first = parse_item();
  if (!IsOperator(",")) return first;
  ExpressionPtr tuple = New(Kind::kTuple);
  Adopt(std::move(first), tuple.get());
  while (TakeOperator(",")) {
    if (current().kind == Token::Kind::kBlockEnd || current().kind == Token::Kind::kPrintEnd ||
        IsOperator(")")) {
      break;
    }
    Adopt(parse_item(), tuple.get());
  }
  return tuple;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (TakeName("or")) left = NewBinary(Operator::kOr, std::move(left), ParseAnd());
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (TakeName("and")) left = NewBinary(Operator::kAnd, std::move(left), ParseNot());
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!TakeName("not")) return ParseComparison();
  const DepthGuard guard(this);
  ExpressionPtr expression = New(Kind::kUnary);
  expression->op = Operator::kNot;
  Adopt(ParseNot(), expression.get());
  return expression;
}

ExpressionPtr ExpressionParser::ParseComparison() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  ExpressionPtr first = ParseSum();
  ExpressionPtr comparison;
  for (;;) {
    std::optional<Operator> op;
    for (const auto& [text, known] : kOperators) {
      if (TakeOperator(text)) op = known;
    }
    if (!op.has_value() && TakeName("in")) op = Operator::kIn;
    if (!op.has_value() && IsName("not") && tokens_[at_ + 1].kind == Token::Kind::kName &&
        tokens_[at_ + 1].text == "in") {
      at_ += 2;
      op = Operator::kNotIn;
    }
    if (!op.has_value()) break;
    if (comparison == nullptr) {
      comparison = New(Kind::kComparison);
      Adopt(std::move(first), comparison.get());
    }
    comparison->operators.push_back(*op);
    Adopt(ParseSum(), comparison.get());
  }
  return comparison != nullptr ? std::move(comparison) : std::move(first);
}

ExpressionPtr ExpressionParser::ParseSum() {
  ExpressionPtr left = ParseConcat();
  for (;;) {
    if (TakeOperator("+")) {
      left = NewBinary(Operator::kAdd, std::move(left), ParseConcat());
    } else if (TakeOperator("-")) {
      left = NewBinary(Operator::kSubtract, std::move(left), ParseConcat());
    } else {
      return left;
    }
  }
}

ExpressionPtr ExpressionParser::ParseConcat() {
  ExpressionPtr left = ParseProduct();
  while (TakeOperator("~")) left = NewBinary(Operator::kConcat, std::move(left), ParseProduct());
  return left;
}

ExpressionPtr ExpressionParser::ParseProduct() {
  ExpressionPtr left = ParsePower();
  for (;;) {
    if (TakeOperator("*")) {
      left = NewBinary(Operator::kMultiply, std::move(left), ParsePower());
    } else if (TakeOperator("/")) {
      left = NewBinary(Operator::kDivide, std::move(left), ParsePower());
    } else if (TakeOperator("//")) {
      left = NewBinary(Operator::kFloorDivide, std::move(left), ParsePower());
    } else if (TakeOperator("%")) {
      left = NewBinary(Operator::kModulo, std::move(left), ParsePower());
    } else {
      return left;
    }
  }
}

ExpressionPtr ExpressionParser::ParsePower() {
  ExpressionPtr left = ParseUnary(/*with_filters=*/true);
  while (TakeOperator("**")) {
    left = NewBinary(Operator::kPower, std::move(left), ParseUnary(/*with_filters=*/true));
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filters) {
  const DepthGuard guard(this);
  ExpressionPtr expression;
  if (IsOperator("-") || IsOperator("+")) {
    const Operator op = Take().text == "-" ? Operator::kNegate : Operator::kPlus;
    expression = New(Kind::kUnary);
    expression->op = op;
    Adopt(ParseUnary(/*with_filters=*/false), expression.get());
  } else {
    expression = ParsePrimary();
  }
  expression = ParsePostfix(std::move(expression));
  return with_filters ? ParseFiltersAndTests(std::move(expression)) : std::move(expression);
}

ExpressionPtr ExpressionParser::ParsePrimary() {
  const Token& token = current();
  ExpressionPtr literal = New(Kind::kLiteral);
  switch (token.kind) {
    case Token::Kind::kName:
      return ParseNamePrimary();
    case Token::Kind::kString: {
      std::string text;
      while (current().kind == Token::Kind::kString) text += Take().text;
      literal->literal = Value::String(std::move(text));
      return literal;
    }
    case Token::Kind::kInteger: {
      errno = 0;
      const long long number = std::strtoll(token.text.c_str(), nullptr, 10);
      if (errno == ERANGE) Fail("integer beyond 64 bits");
      literal->literal = Value::Int(number);
      Take();
      return literal;
    }
    case Token::Kind::kFloat:
      literal->literal = Value::Float(std::strtod(token.text.c_str(), nullptr));
      Take();
      return literal;
    default:
      break;
  }
  if (IsOperator("[")) return ParseListLiteral();
  if (IsOperator("{")) return ParseMapLiteral();
  if (!TakeOperator("(")) Fail("expected an expression");
  if (TakeOperator(")")) return New(Kind::kTuple);
  ExpressionPtr inner = ParseTuple(/*with_conditional=*/true);
  ExpectOperator(")");
  return inner;
}

ExpressionPtr ExpressionParser::ParseNamePrimary() {
  ExpressionPtr expression = New(Kind::kLiteral);
  const std::string name = Take().text;
  if (name == "true" || name == "True") {
    expression->literal = Value::Bool(true);
  } else if (name == "false" || name == "False") {
    expression->literal = Value::Bool(false);
  } else if (name == "none" || name == "None") {
    expression->literal = Value::None();
  } else {
    if (calls_.IsOfMacro(name)) FailAt(expression->line, name + " of a macro is not supported");
    expression->kind = Kind::kName;
    expression->name = name;
    calls_.MeetName(name);
  }
  return expression;
}

ExpressionPtr ExpressionParser::ParseListLiteral() {
  ExpectOperator("[");
  ExpressionPtr list = New(Kind::kList);
  while (!TakeOperator("]")) {
    if (!list->operands.empty()) {
      ExpectOperator(",");
      if (TakeOperator("]")) break;
    }
    Adopt(ParseExpression(), list.get());
  }
  return list;
}

ExpressionPtr ExpressionParser::ParseMapLiteral() {
  ExpectOperator("{");
  ExpressionPtr map = New(Kind::kMap);
  while (!TakeOperator("}")) {
    if (!map->operands.empty()) {
      ExpectOperator(",");
      if (TakeOperator("}")) break;
    }
    Adopt(ParseExpression(), map.get());
    if (const Expression& key = *map->operands.back(); key.kind == Kind::kLiteral) {
      if (key.literal.is_string()) calls_.MeetEntry(key.literal.AsString());
    }
    ExpectOperator(":");
    Adopt(ParseExpression(), map.get());
  }
  return map;
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr expression) {
  for (;;) {
    if (TakeOperator(".")) {
      ExpressionPtr attribute = New(Kind::kAttribute);
      Adopt(std::move(expression), attribute.get());
      if (current().kind == Token::Kind::kInteger) {
        attribute->kind = Kind::kItem;
        Adopt(ParsePrimary(), attribute.get());
      } else {
        attribute->name = ExpectName();
        calls_.MeetAttribute(attribute->name);
      }
      expression = std::move(attribute);
    } else if (IsOperator("[")) {
      expression = ParseSubscript(std::move(expression));
    } else if (IsOperator("(")) {
      expression = ParseCall(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr object) {
  ExpectOperator("[");
  ExpressionPtr item = New(Kind::kItem);
  Adopt(std::move(object), item.get());
  const auto at_bound_end = [&] { return IsOperator(":") || IsOperator("]"); };
  ExpressionPtr bounds[3];
  bounds[0] = IsOperator(":") ? nullptr : ParseExpression();
  if (IsOperator(",")) Fail("a subscript of several values is not supported");
  if (TakeOperator(":")) {
    item->kind = Kind::kSlice;
    if (!at_bound_end()) bounds[1] = ParseExpression();
    if (TakeOperator(":") && !at_bound_end()) bounds[2] = ParseExpression();
    for (ExpressionPtr& bound : bounds) Adopt(std::move(bound), item.get());
  } else {
    Adopt(std::move(bounds[0]), item.get());
  }
  ExpectOperator("]");
  return item;
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr call = New(Kind::kCall);
  if (callee->kind == Kind::kName) calls_.MeetNameCall(callee->name, callee->line);
  if (callee->kind == Kind::kAttribute) calls_.MeetAttributeCall(callee->name, callee->line);
  Adopt(std::move(callee), call.get());
  ParseArguments(call.get());
  return call;
}

void ExpressionParser::ParseArguments(Expression* call) {
  ExpectOperator("(");
  bool is_first = true;
  while (!TakeOperator(")")) {
    if (!is_first) {
      ExpectOperator(",");
      if (TakeOperator(")")) break;
    }
    is_first = false;
    if (IsOperator("*") || IsOperator("**")) Fail("unpacking of arguments is not supported");
    const bool is_named = current().kind == Token::Kind::kName &&
                          tokens_[at_ + 1].kind == Token::Kind::kOperator &&
                          tokens_[at_ + 1].text == "=";
    std::string name;
    if (is_named) {
      name = Take().text;
      calls_.MeetEntry(name);  // namespace(f=...)
      Take();
    } else if (!call->named_arguments.empty()) {
      Fail("positional argument behind a named one");
    }
    ExpressionPtr value = ParseExpression();
    call->depth = std::max(call->depth, 1 + value->depth);
    if (call->depth > kMaxDepth) {
      Fail("expression nested deeper than " + std::to_string(kMaxDepth));
    }
    if (is_named) {
      call->named_arguments.push_back({std::move(name), std::move(value)});
    } else {
      call->arguments.push_back(std::move(value));
    }
  }
}

ExpressionPtr ExpressionParser::ParseFiltersAndTests(ExpressionPtr expression) {
  for (;;) {
    if (TakeOperator("|")) {
      expression = ParseFilter(std::move(expression));
    } else if (TakeName("is")) {
      expression = ParseTest(std::move(expression));
    } else if (IsOperator("(")) {
      expression = ParseCall(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFilterChain(ExpressionPtr input) {
  ExpressionPtr expression = ParseFilter(std::move(input));
  while (TakeOperator("|")) expression = ParseFilter(std::move(expression));
  return expression;
}

ExpressionPtr ExpressionParser::ParseFilter(ExpressionPtr input) {
  ExpressionPtr filter = New(Kind::kFilter);
  if (current().kind == Token::Kind::kName && !IsFilter(current().text)) {
    Fail("filter '" + current().text + "' is not supported");
  }
  filter->name = ExpectName();
  Adopt(std::move(input), filter.get());
  if (IsOperator("(")) ParseArguments(filter.get());
  CheckWhatItApplies(*filter);
  return filter;
}

// map applies a filter, select and its like a test: one that is spelled out must be known.
void ExpressionParser::CheckWhatItApplies(const Expression& filter) {
  const bool is_map = filter.name == "map";
  if (!is_map && !filter.name.starts_with("select") && !filter.name.starts_with("reject")) return;
  const size_t place = filter.name.ends_with("attr") ? 1 : 0;
  if (filter.arguments.size() <= place) return;
  const Expression& argument = *filter.arguments[place];
  if (argument.kind != Kind::kLiteral || !argument.literal.is_string()) return;
  const std::string name = argument.literal.AsString();
  if (is_map ? IsFilter(name) : IsValueTest(name)) return;
  FailAt(argument.line, (is_map ? "filter '" : "test '") + name + "' is not supported");
}

bool ExpressionParser::StartsTestArgument() const {
  switch (current().kind) {
    case Token::Kind::kName:
      return !IsName("else") && !IsName("or") && !IsName("and") && !IsName("is") && !IsName("if") &&
             !IsName("not") && !IsName("in");
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return true;
    default:
      return IsOperator("[") || IsOperator("{");
  }
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr input) {
  const bool negated = TakeName("not");
  ExpressionPtr test = New(Kind::kTest);
  if (current().kind == Token::Kind::kName && !IsValueTest(current().text)) {
    Fail("test '" + current().text + "' is not supported");
  }
  test->name = ExpectName();
  Adopt(std::move(input), test.get());
  if (IsOperator("(")) {
    ParseArguments(test.get());
  } else if (StartsTestArgument()) {
    ExpressionPtr argument = ParsePostfix(ParsePrimary());
    test->depth = std::max(test->depth, 1 + argument->depth);
    test->arguments.push_back(std::move(argument));
  }
  if (!negated) return test;
  ExpressionPtr expression = New(Kind::kUnary);
  expression->op = Operator::kNot;
  Adopt(std::move(test), expression.get());
  return expression;
}

}  // namespace refrain::engine::jinja
