#ifndef REFRAIN_ENGINE_TEXT_JINJA_AST_H_
#define REFRAIN_ENGINE_TEXT_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPlus,
};

// One node of an expression; what the fields hold is said at each kind.
struct Expression {
  enum class Kind {
    kLiteral,      // literal
    kName,         // name
    kList,         // operands
    kTuple,        // operands
    kMap,          // operands: key, value, key, value, ...
    kUnary,        // op, operands[0]
    kBinary,       // op, operands[0..1]
    kComparison,   // operands[0] operators[0] operands[1] operators[1] operands[2] ...
    kConditional,  // operands: condition, then, [else]
    kAttribute,    // operands[0], name
    kItem,         // operands[0], operands[1]
    kSlice,        // operands[0], then begin, end, step, each may be null
    kCall,         // operands[0] is called with arguments
    kFilter,       // operands[0] | name(arguments)
    kTest,         // operands[0] is name(arguments)
  };
  struct NamedArgument {
    std::string name;
    ExpressionPtr value;
  };

  Kind kind;
  int line = 0;
  int depth = 1;  // 1 + that of the deepest operand or argument
  Value literal;
  std::string name;
  Operator op = Operator::kAdd;
  std::vector<Operator> operators;
  std::vector<ExpressionPtr> operands;
  std::vector<ExpressionPtr> arguments;
  std::vector<NamedArgument> named_arguments;
};

// A place that `set` and `for` assign to.
struct Target {
  std::vector<std::string> names;  // one, or several to unpack
  std::string attribute;           // of the namespace names[0]; empty: the name itself
  bool unpacks = false;
};

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // may be null
};

struct Statement {
  enum class Kind {
    kText,      // text
    kPrint,     // expression
    kIf,        // branches, otherwise
    kFor,       // target, expression, [condition], body, otherwise
    kSet,       // target, expression
    kSetBlock,  // target, body, [expression: the filters, on filter_input]
    kFilter,    // expression on filter_input, body
    kMacro,     // text: its name, parameters, body
    kWith,      // assignments, body
    kGroup,     // body (generation)
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPtr condition;
    Block body;
  };

  Kind kind;
  int line = 0;
  std::string text;
  Target target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  std::vector<std::pair<std::string, ExpressionPtr>> assignments;
  Block body;
  Block otherwise;
};

// The name under which the filters of a block find what they filter; no template can spell it.
inline constexpr char kFilterInput[] = " filter input";

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_AST_H_
