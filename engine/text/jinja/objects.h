#ifndef REFRAIN_ENGINE_TEXT_JINJA_OBJECTS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_OBJECTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/call_arguments.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

class Interpreter;
struct Statement;

// What a template can call.
class Callable : public Object {
 public:
  virtual Value Call(const CallArguments& arguments, Interpreter* interpreter) const = 0;
};

// namespace(...): the one value that assignments change.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  Map attributes;
};

// A macro; the statement belongs to the template, which outlives every value.
class Macro : public Callable {
 public:
  // `scope` is that of the definition, by its place and by its number.
  Macro(const Statement* statement, size_t scope, uint64_t number)
      : statement_(statement), scope_(scope), number_(number) {}
  std::string_view type_name() const override { return "Macro"; }
  Value Call(const CallArguments& arguments, Interpreter* interpreter) const override;

 private:
  const Statement* statement_;
  size_t scope_;
  uint64_t number_;
};

// `loop`, as of one pass.
class Loop : public Callable {
 public:
  // `last_changed` is of all passes of the loop: what `changed` was asked last.
  Loop(const Value::List* items, size_t index, int depth, std::optional<Value>* last_changed)
      : items_(items), index_(index), depth_(depth), last_changed_(last_changed) {}
  std::string_view type_name() const override { return "LoopContext"; }
  Value Attribute(const std::string& name) const;
  Value Cycle(const CallArguments& arguments) const;
  // Whether the values are others than at the last call.
  Value Changed(const CallArguments& arguments, Budget* budget) const;
  Value Call(const CallArguments& arguments, Interpreter* interpreter) const override;

  // The items are gone: a `loop` that was kept in a namespace knows nothing more.
  void Finish() { items_ = nullptr; }

 private:
  const Value::List* items_;
  size_t index_;
  int depth_;
  std::optional<Value>* last_changed_;
};

// range, namespace, dict, raise_exception, strftime_now. Undefined when there is none of that name.
Value FindGlobalFunction(std::string_view name);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_OBJECTS_H_
