#include "engine/text/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/objects.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/template_error.h"
#include "engine/text/jinja/value_tests.h"

namespace refrain::engine::jinja {
namespace {

using Kind = Expression::Kind;

// A method of a value, between `.name` and its call.
class BoundMethod : public Callable {
 public:
  BoundMethod(Value object, std::string name)
      : object_(std::move(object)), name_(std::move(name)) {}
  std::string_view type_name() const override { return "method"; }
  int depth() const override { return 1 + object_.depth(); }
  Value Call(const CallArguments& arguments, Interpreter* interpreter) const override {
    return CallMethod(object_, name_, arguments, interpreter->budget());
  }

 private:
  Value object_;
  std::string name_;
};

std::string AtLine(int line, const std::string& message) {
  return "line " + std::to_string(line) + ": " + message;
}

}  // namespace

// A scope for as long as it lives, inside of the innermost one or of `parent`.
class Interpreter::ScopeGuard {
 public:
  explicit ScopeGuard(Interpreter* interpreter)
      : ScopeGuard(interpreter, interpreter->scopes_.size() - 1) {}
  ScopeGuard(Interpreter* interpreter, size_t parent) : interpreter_(interpreter) {
    interpreter_->scopes_.push_back(
        {.names = {}, .parent = parent, .number = interpreter_->num_scopes_made_++});
  }
  ~ScopeGuard() { interpreter_->scopes_.pop_back(); }

 private:
  Interpreter* interpreter_;
};

// Collects what is printed while it lives.
class Interpreter::OutputGuard {
 public:
  explicit OutputGuard(Interpreter* interpreter) : interpreter_(interpreter) {
    std::swap(outer_, interpreter_->output_);
  }
  ~OutputGuard() { interpreter_->output_ = std::move(outer_); }
  Value Take() { return Value::String(std::move(interpreter_->output_)); }

 private:
  Interpreter* interpreter_;
  Text outer_;
};

Interpreter::Interpreter(const Value& variables, const std::tm& now, EncodePace* pace)
    : variables_(variables), now_(now), budget_(pace), scopes_(1) {}

Interpreter::~Interpreter() {
  for (const std::shared_ptr<Namespace>& space : namespaces_) space->attributes = Map();
}

Text Interpreter::Run(const Block& block) {
  Execute(block);
  return std::move(output_);
}

Value Interpreter::NewNamespace(const CallArguments& arguments) {
  auto space = std::make_shared<Namespace>();
  for (const Value& initial : arguments.positional) {
    if (!initial.is_map()) throw TemplateError("namespace() takes a mapping or named arguments");
    budget_.MapCopy(initial.AsMap());
    space->attributes = initial.AsMap();
  }
  for (const auto& [name, value] : arguments.named) space->attributes.Set(name, value);
  budget_.List(4);
  namespaces_.push_back(space);
  return Value::MakeObject(space);
}

Value Interpreter::CallMacro(const Statement& macro, size_t scope, uint64_t number,
                             const CallArguments& arguments) {
  const Budget::Frame frame(&budget_);
  const std::string& name = macro.text;
  if (arguments.positional.size() > macro.parameters.size()) {
    throw TemplateError("macro '" + name + "' takes at most " +
                        std::to_string(macro.parameters.size()) + " arguments");
  }
  const bool is_alive = scope < scopes_.size() && scopes_[scope].number == number;
  const ScopeGuard scope_guard(this, is_alive ? scope : 0);
  budget_.Bytes(2 * macro.parameters.size() * arguments.named.size());  // looked for both ways
  for (const auto& [given, value] : arguments.named) {
    const bool is_known = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                      [&](const Parameter& p) { return p.name == given; });
    if (!is_known) throw TemplateError("macro '" + name + "' has no parameter '" + given + "'");
  }
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    Value value = Value::Undefined(parameter.name);
    const auto named =
        std::find_if(arguments.named.begin(), arguments.named.end(),
                     [&](const auto& given) { return given.first == parameter.name; });
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (named != arguments.named.end()) {
      value = named->second;
    } else if (parameter.fallback != nullptr) {
      value = Evaluate(*parameter.fallback);
    }
    SetName(parameter.name, std::move(value));
  }
  OutputGuard output(this);
  Execute(macro.body);
  return output.Take();
}

Interpreter::Flow Interpreter::Execute(const Block& block) {
  const Budget::Frame frame(&budget_);
  for (const std::unique_ptr<Statement>& statement : block) {
    const Flow flow = ExecuteOne(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteOne(const Statement& statement) {
  budget_.Step();
  switch (statement.kind) {
    case Statement::Kind::kText:
      budget_.String(statement.text.size());
      output_.Append(statement.text);
      return Flow::kNext;
    case Statement::Kind::kPrint:
      Print(Evaluate(*statement.expression));
      return Flow::kNext;
    case Statement::Kind::kIf:
      return ExecuteIf(statement);
    case Statement::Kind::kFor:
      return ExecuteFor(statement);
    case Statement::Kind::kSet:
      Assign(statement.target, Evaluate(*statement.expression));
      return Flow::kNext;
    case Statement::Kind::kSetBlock:
      return ExecuteSetBlock(statement);
    case Statement::Kind::kFilter:
      return ExecuteFilter(statement);
    case Statement::Kind::kMacro:
      SetName(statement.text, Value::MakeObject(std::make_shared<Macro>(
                                  &statement, scopes_.size() - 1, scopes_.back().number)));
      return Flow::kNext;
    case Statement::Kind::kWith:
      return ExecuteWith(statement);
    case Statement::Kind::kGroup: {
      const ScopeGuard scope(this);
      return Execute(statement.body);
    }
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interpreter::Print(const Value& value) {
  const Text text = ToText(value, &budget_);
  budget_.Bytes(text.size());
  if (output_.size() + text.size() > Budget::kMaxStringBytes) {
    budget_.String(output_.size() + text.size());
  }
  output_.Append(text);
}

Interpreter::Flow Interpreter::ExecuteIf(const Statement& statement) {
  for (const Statement::Branch& branch : statement.branches) {
    if (IsTrue(Evaluate(*branch.condition))) return Execute(branch.body);
  }
  return Execute(statement.otherwise);
}

// With a condition the loop only counts, and only sees, what passes it.
Value::List Interpreter::ItemsOfLoop(const Statement& statement) {
  Value::List items;
  const Value iterable = Evaluate(*statement.expression);
  for (Value& item : ToList(iterable, &budget_)) {
    if (statement.condition != nullptr) {
      const ScopeGuard scope(this);
      Assign(statement.target, item);
      if (!IsTrue(Evaluate(*statement.condition))) continue;
    }
    items.push_back(std::move(item));
  }
  return items;
}

Interpreter::Flow Interpreter::ExecuteFor(const Statement& statement) {
  const Value::List items = ItemsOfLoop(statement);
  std::optional<Value> last_changed;
  bool any_ended = false;
  for (size_t i = 0; i < items.size(); ++i) {
    const ScopeGuard scope(this);
    const auto loop = std::make_shared<Loop>(&items, i, 1, &last_changed);
    struct LoopGuard {
      Loop* loop;
      ~LoopGuard() { loop->Finish(); }
    } const loop_guard{loop.get()};
    SetName("loop", Value::MakeObject(loop));
    Assign(statement.target, items[i]);
    const Flow flow = Execute(statement.body);
    if (flow == Flow::kBreak) break;
    any_ended = any_ended || flow == Flow::kNext;
  }
  // Of jinja2: `else` is also for a loop of which no pass came to the end of its body.
  if (any_ended) return Flow::kNext;
  const ScopeGuard scope(this);
  return Execute(statement.otherwise);
}

Interpreter::Flow Interpreter::ExecuteSetBlock(const Statement& statement) {
  Flow flow;
  Value value;
  {
    const ScopeGuard scope(this);
    OutputGuard output(this);
    flow = Execute(statement.body);
    value = output.Take();
  }
  if (statement.expression != nullptr) {
    value = ApplyFilters(*statement.expression, std::move(value));
  }
  Assign(statement.target, value);
  return flow;
}

Interpreter::Flow Interpreter::ExecuteFilter(const Statement& statement) {
  Flow flow;
  Value value;
  {
    const ScopeGuard scope(this);
    OutputGuard output(this);
    flow = Execute(statement.body);
    value = output.Take();
  }
  Print(ApplyFilters(*statement.expression, std::move(value)));
  return flow;
}

Value Interpreter::ApplyFilters(const Expression& filters, Value input) {
  const ScopeGuard scope(this);
  SetName(kFilterInput, std::move(input));
  return Evaluate(filters);
}

Interpreter::Flow Interpreter::ExecuteWith(const Statement& statement) {
  // All values are computed outside of the new scope.
  Value::List values;
  for (const auto& [name, expression] : statement.assignments) {
    values.push_back(Evaluate(*expression));
  }
  const ScopeGuard scope(this);
  for (size_t i = 0; i < values.size(); ++i) SetName(statement.assignments[i].first, values[i]);
  return Execute(statement.body);
}

void Interpreter::Assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value* object = FindNameOrNull(target.names[0]);
    auto* space = object != nullptr && object->is_object()
                      ? dynamic_cast<Namespace*>(object->AsObject())
                      : nullptr;
    if (space == nullptr) throw TemplateError("'" + target.names[0] + "' is no namespace");
    budget_.Bytes(3 * target.attribute.size());  // copied, hashed and compared
    space->attributes.Set(target.attribute, value);
    return;
  }
  if (!target.unpacks) {
    SetName(target.names[0], value);
    return;
  }
  const Value::List items = ToList(value, &budget_);
  if (items.size() != target.names.size()) {
    throw TemplateError("cannot unpack " + std::to_string(items.size()) + " values into " +
                        std::to_string(target.names.size()) + " names");
  }
  for (size_t i = 0; i < items.size(); ++i) SetName(target.names[i], items[i]);
}

void Interpreter::SetName(std::string_view name, Value value) {
  budget_.Bytes(scopes_.back().names.size());
  for (auto& [known, held] : scopes_.back().names) {
    if (known == name) {
      held = std::move(value);
      return;
    }
  }
  scopes_.back().names.emplace_back(name, std::move(value));
}

const Value* Interpreter::FindNameOrNull(std::string_view name) {
  budget_.Bytes(name.size());
  for (size_t i = scopes_.size() - 1;; i = scopes_[i].parent) {
    budget_.Bytes(scopes_[i].names.size());
    for (const auto& [known, value] : scopes_[i].names) {
      if (known == name) return &value;
    }
    if (i == 0) break;
  }
  return variables_.AsMap().FindOrNull(name);
}

Value Interpreter::Evaluate(const Expression& expression) {
  const Budget::Frame frame(&budget_);
  const auto& operands = expression.operands;
  switch (expression.kind) {
    case Kind::kLiteral:
      return expression.literal;
    case Kind::kName:
      return EvaluateName(expression);
    case Kind::kList:
      return budget_.Depth(Value::MakeList(EvaluateList(operands)));
    case Kind::kTuple:
      return budget_.Depth(Value::MakeTuple(EvaluateList(operands)));
    case Kind::kMap:
      return EvaluateMap(expression);
    case Kind::kUnary:
      return ApplyUnary(expression.op, Evaluate(*operands[0]));
    case Kind::kBinary:
      return EvaluateBinary(expression);
    case Kind::kComparison:
      return EvaluateComparison(expression);
    case Kind::kConditional:
      if (IsTrue(Evaluate(*operands[0]))) return Evaluate(*operands[1]);
      return operands.size() > 2 ? Evaluate(*operands[2])
                                 : Value::Undefined("the missing else of a conditional");
    case Kind::kAttribute:
      return EvaluateAttribute(Evaluate(*operands[0]), expression.name);
    case Kind::kItem:
      return EvaluateItem(expression);
    case Kind::kSlice:
      return EvaluateSlice(expression);
    case Kind::kCall:
      return EvaluateCall(expression);
    case Kind::kFilter: {
      const Value input = Evaluate(*operands[0]);
      return ApplyFilter(expression.name, input, EvaluateArguments(expression), &budget_);
    }
    case Kind::kTest: {
      const Value value = Evaluate(*operands[0]);
      return Value::Bool(
          ApplyValueTest(expression.name, value, EvaluateArguments(expression), &budget_));
    }
  }
  return Value();
}

Value Interpreter::EvaluateName(const Expression& expression) {
  const Value* found = FindNameOrNull(expression.name);
  return found != nullptr ? *found : FindGlobalFunction(expression.name);
}

Value Interpreter::EvaluateMap(const Expression& expression) {
  Map map;
  budget_.List(expression.operands.size());
  for (size_t i = 0; i + 1 < expression.operands.size(); i += 2) {
    Value key = Evaluate(*expression.operands[i]);
    if (!IsMapKey(key)) {
      throw TemplateError(AtLine(
          expression.line, "a key of type " + std::string(TypeName(key)) + " is not supported"));
    }
    budget_.Key(key);
    map.Set(std::move(key), Evaluate(*expression.operands[i + 1]));
  }
  return budget_.Depth(Value::MakeMap(std::move(map)));
}

Value Interpreter::EvaluateBinary(const Expression& expression) {
  const Value left = Evaluate(*expression.operands[0]);
  if (expression.op == Operator::kAnd || expression.op == Operator::kOr) {
    const bool decided = IsTrue(left) == (expression.op == Operator::kOr);
    return decided ? left : Evaluate(*expression.operands[1]);
  }
  const Value right = Evaluate(*expression.operands[1]);
  return budget_.Depth(ApplyBinary(expression.op, left, right, &budget_));
}

Value Interpreter::EvaluateComparison(const Expression& expression) {
  Value left = Evaluate(*expression.operands[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = Evaluate(*expression.operands[i + 1]);
    if (!IsTrue(ApplyBinary(expression.operators[i], left, right, &budget_))) {
      return Value::Bool(false);
    }
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateAttribute(const Value& object, const std::string& name) {
  budget_.Bytes(2 * name.size());  // looked up, and kept by what is undefined
  if (object.is_undefined()) {
    throw TemplateError("'" + std::string(object.undefined_what()) + "' is undefined");
  }
  if (object.is_object()) {
    if (const auto* space = dynamic_cast<const Namespace*>(object.AsObject())) {
      const Value* found = space->attributes.FindOrNull(name);
      return found != nullptr ? *found
                              : Value::Undefined("namespace object has no attribute " + name);
    }
    if (const auto* loop = dynamic_cast<const Loop*>(object.AsObject())) {
      if (name == "cycle" || name == "changed") return object;  // EvaluateCall knows
      return loop->Attribute(name);
    }
    return Value::Undefined(std::string(TypeName(object)) + " object has no attribute " + name);
  }
  // As Python: a method hides an entry of the same name.
  if (HasMethod(object, name)) {
    return Value::MakeObject(std::make_shared<BoundMethod>(object, name));
  }
  if (object.is_map()) {
    const Value* found = object.AsMap().FindOrNull(name);
    if (found != nullptr) return *found;
  }
  if (object.is_list()) {
    if (const Value* const found = object.NamedItemOrNull(name)) return *found;
  }
  return Value::Undefined(std::string(TypeName(object)) + " object has no attribute " + name);
}

Value Interpreter::EvaluateItem(const Expression& expression) {
  const Value object = Evaluate(*expression.operands[0]);
  const Value key = Evaluate(*expression.operands[1]);
  if (object.is_object() && key.is_string()) return EvaluateAttribute(object, key.AsString());
  Value item = ItemOf(object, key, &budget_);
  if (item.is_undefined() && key.is_string() && HasMethod(object, key.AsString())) {
    return Value::MakeObject(std::make_shared<BoundMethod>(object, key.AsString()));
  }
  return item;
}

Value Interpreter::EvaluateSlice(const Expression& expression) {
  const Value object = Evaluate(*expression.operands[0]);
  Value bounds[3];
  const Value* given[3] = {nullptr, nullptr, nullptr};
  for (int i = 0; i < 3; ++i) {
    if (expression.operands[i + 1] == nullptr) continue;
    bounds[i] = Evaluate(*expression.operands[i + 1]);
    given[i] = &bounds[i];
  }
  return SliceOf(object, given[0], given[1], given[2], &budget_);
}

Value Interpreter::EvaluateCall(const Expression& expression) {
  const Expression& callee = *expression.operands[0];
  const Value function = Evaluate(callee);
  if (function.is_undefined()) {
    throw TemplateError(
        AtLine(expression.line, "'" + std::string(function.undefined_what()) + "' is undefined"));
  }
  const CallArguments arguments = EvaluateArguments(expression);
  const auto* callable =
      function.is_object() ? dynamic_cast<const Callable*>(function.AsObject()) : nullptr;
  if (callable == nullptr) {
    throw TemplateError(
        AtLine(expression.line,
               "a value of type " + std::string(TypeName(function)) + " cannot be called"));
  }
  if (const auto* loop = dynamic_cast<const Loop*>(callable)) {
    if (callee.kind == Kind::kAttribute && callee.name == "cycle") return loop->Cycle(arguments);
    if (callee.kind == Kind::kAttribute && callee.name == "changed") {
      return loop->Changed(arguments, &budget_);
    }
  }
  return callable->Call(arguments, this);
}

Value::List Interpreter::EvaluateList(const std::vector<ExpressionPtr>& expressions) {
  budget_.List(expressions.size());
  Value::List items;
  items.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) items.push_back(Evaluate(*expression));
  return items;
}

CallArguments Interpreter::EvaluateArguments(const Expression& expression) {
  CallArguments arguments;
  for (const ExpressionPtr& argument : expression.arguments) {
    arguments.positional.push_back(Evaluate(*argument));
  }
  for (const Expression::NamedArgument& argument : expression.named_arguments) {
    budget_.Bytes(3 * argument.name.size());  // copied, and the key of some maps
    arguments.named.emplace_back(argument.name, Evaluate(*argument.value));
  }
  return arguments;
}

}  // namespace refrain::engine::jinja
