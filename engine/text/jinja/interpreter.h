#ifndef REFRAIN_ENGINE_TEXT_JINJA_INTERPRETER_H_
#define REFRAIN_ENGINE_TEXT_JINJA_INTERPRETER_H_

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/encode_pace.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/call_arguments.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

class Namespace;

// One rendering: walks the statements with a stack of scopes and a budget. Made, run once and
// thrown away by Template. Throws TemplateError, and RenderingStopped.
//
// Scopes: the template, each pass of a loop, each block and each macro call has its own; `if` has
// none. A name is looked up from the innermost outwards; a macro sees what its definition sees, not
// what its caller sees.
class Interpreter {
 public:
  // All outlive the interpreter; `pace` may be null.
  Interpreter(const Value& variables, const std::tm& now, EncodePace* pace);
  ~Interpreter();

  Text Run(const Block& block);

  Budget* budget() { return &budget_; }
  const std::tm& now() const { return now_; }
  Value NewNamespace(const CallArguments& arguments);
  // `scope` and its number are of where it was defined. When that is gone (a namespace carried the
  // macro out) it sees the template's alone.
  Value CallMacro(const Statement& macro, size_t scope, uint64_t number,
                  const CallArguments& arguments);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  struct Scope {
    std::vector<std::pair<std::string_view, Value>> names;
    size_t parent = 0;    // where a name that is not here is looked up; the template's is its own
    uint64_t number = 0;  // of all scopes that there were
  };
  class ScopeGuard;
  class OutputGuard;

  Flow Execute(const Block& block);
  Flow ExecuteOne(const Statement& statement);
  Flow ExecuteIf(const Statement& statement);
  Flow ExecuteFor(const Statement& statement);
  Flow ExecuteSetBlock(const Statement& statement);
  Flow ExecuteFilter(const Statement& statement);
  Flow ExecuteWith(const Statement& statement);
  Value::List ItemsOfLoop(const Statement& statement);
  void Print(const Value& value);

  void Assign(const Target& target, const Value& value);
  void SetName(std::string_view name, Value value);
  const Value* FindNameOrNull(std::string_view name);

  Value Evaluate(const Expression& expression);
  Value EvaluateName(const Expression& expression);
  Value EvaluateMap(const Expression& expression);
  Value EvaluateBinary(const Expression& expression);
  Value EvaluateComparison(const Expression& expression);
  Value EvaluateAttribute(const Value& object, const std::string& name);
  Value EvaluateItem(const Expression& expression);
  Value EvaluateSlice(const Expression& expression);
  Value EvaluateCall(const Expression& expression);
  Value::List EvaluateList(const std::vector<ExpressionPtr>& expressions);
  CallArguments EvaluateArguments(const Expression& expression);
  Value ApplyFilters(const Expression& filters, Value input);

  const Value& variables_;
  const std::tm& now_;
  Budget budget_;
  Text output_;
  std::vector<Scope> scopes_;  // [0] belongs to the template
  uint64_t num_scopes_made_ = 1;
  // All of them, to cut the cycles that a namespace can hold.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_INTERPRETER_H_
