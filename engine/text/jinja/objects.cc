#include "engine/text/jinja/objects.h"

#include <array>
#include <ctime>
#include <optional>
#include <utility>

#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/interpreter.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/template_error.h"

namespace refrain::engine::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as jinja2's sandbox

int64_t IntegerArgument(const std::optional<Value>& value) {
  const std::optional<int64_t> number = value.has_value() ? IntegerOrNull(*value) : std::nullopt;
  if (!number.has_value()) throw TemplateError("range() needs integers");
  return *number;
}

Value Range(const CallArguments& arguments, Interpreter* interpreter) {
  const auto bound = arguments.Bind("range", {"start", "stop", "step"});
  const int64_t first = IntegerArgument(bound[0]);
  const int64_t start = bound[1].has_value() ? first : 0;
  const int64_t stop = bound[1].has_value() ? IntegerArgument(bound[1]) : first;
  const int64_t step = bound[2].has_value() ? IntegerArgument(bound[2]) : 1;
  if (step == 0) throw TemplateError("range() with a step of zero");
  Value::List items;
  // In 128 bits: the distance of two 64-bit numbers may not fit into one.
  for (__int128 i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      throw TemplateError("range() of more than " + std::to_string(kMaxRange) + " numbers");
    }
    items.push_back(Value::Int(static_cast<int64_t>(i)));
  }
  interpreter->budget()->List(items.size());
  return Value::MakeList(std::move(items));
}

Value MakeNamespace(const CallArguments& arguments, Interpreter* interpreter) {
  return interpreter->NewNamespace(arguments);
}

Value MakeDict(const CallArguments& arguments, Interpreter* interpreter) {
  if (arguments.positional.size() > 1) {
    throw TemplateError("dict() takes one mapping or list of pairs, and named arguments");
  }
  Budget* const budget = interpreter->budget();
  Map map;
  if (!arguments.positional.empty() && arguments.positional[0].is_map()) {
    budget->MapCopy(arguments.positional[0].AsMap());
    map = arguments.positional[0].AsMap();
  } else if (!arguments.positional.empty()) {
    for (const Value& item : ToList(arguments.positional[0], budget)) {
      const Value::List pair = ToList(item, budget);
      if (pair.size() != 2 || !IsMapKey(pair[0])) {
        throw TemplateError("dict() takes pairs of a key and a value");
      }
      budget->Key(pair[0]);
      map.Set(pair[0], pair[1]);
    }
    budget->List(2 * map.size());
  }
  for (const auto& [name, value] : arguments.named) map.Set(name, value);
  return interpreter->budget()->Depth(Value::MakeMap(std::move(map)));
}

Value RaiseException(const CallArguments& arguments, Interpreter* interpreter) {
  const auto bound = arguments.Bind("raise_exception", {"message"});
  throw TemplateError(bound[0].has_value() ? ToText(*bound[0], interpreter->budget()).bytes() : "");
}

// Without %z and %Z: of a time that knows no zone, as transformers takes it, they are empty.
std::string WithoutZone(std::string_view format) {
  std::string without;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] == '%' && i + 1 < format.size()) {
      if (format[i + 1] != 'z' && format[i + 1] != 'Z') without.append(format.substr(i, 2));
      ++i;
    } else {
      without += format[i];
    }
  }
  return without;
}

Value StrftimeNow(const CallArguments& arguments, Interpreter* interpreter) {
  const auto bound = arguments.Bind("strftime_now", {"format"});
  if (!bound[0].has_value() || !bound[0]->is_string()) {
    throw TemplateError("strftime_now() needs a format");
  }
  const std::string format = WithoutZone(bound[0]->AsString());
  if (format.size() > 100) throw TemplateError("strftime_now() with a format beyond 100 bytes");
  // One conversion gives at most some 30 bytes in the C locale, but widths may be asked for.
  std::array<char, 4096> buffer;
  const size_t size =
      std::strftime(buffer.data(), buffer.size(), format.c_str(), &interpreter->now());
  return Value::String(MarkedLike(bound[0]->AsText(), std::string(buffer.data(), size)));
}

class GlobalFunction : public Callable {
 public:
  using Body = Value (*)(const CallArguments& arguments, Interpreter* interpreter);
  explicit GlobalFunction(Body body) : body_(body) {}
  std::string_view type_name() const override { return "function"; }
  Value Call(const CallArguments& arguments, Interpreter* interpreter) const override {
    return body_(arguments, interpreter);
  }

 private:
  Body body_;
};

struct NamedFunction {
  std::string_view name;
  GlobalFunction::Body body;
};

constexpr std::array<NamedFunction, 5> kFunctions = {{
    {"range", Range},
    {"namespace", MakeNamespace},
    {"dict", MakeDict},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
}};

}  // namespace

Value Macro::Call(const CallArguments& arguments, Interpreter* interpreter) const {
  return interpreter->CallMacro(*statement_, scope_, number_, arguments);
}

Value Loop::Attribute(const std::string& name) const {
  if (items_ == nullptr) return Value::Undefined("loop." + name);
  const int64_t index = static_cast<int64_t>(index_);
  const int64_t size = static_cast<int64_t>(items_->size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(size - index);
  if (name == "revindex0") return Value::Int(size - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == size);
  if (name == "length") return Value::Int(size);
  if (name == "depth") return Value::Int(depth_);
  if (name == "depth0") return Value::Int(depth_ - 1);
  if (name == "previtem" && index > 0) return (*items_)[index_ - 1];
  if (name == "nextitem" && index + 1 < size) return (*items_)[index_ + 1];
  return Value::Undefined("loop." + name);
}

Value Loop::Cycle(const CallArguments& arguments) const {
  if (arguments.positional.empty()) throw TemplateError("loop.cycle() needs values");
  return arguments.positional[index_ % arguments.positional.size()];
}

Value Loop::Changed(const CallArguments& arguments, Budget* budget) const {
  if (items_ == nullptr) throw TemplateError("loop.changed() of a loop that is over");
  const Value values = budget->Depth(Value::MakeTuple(arguments.positional));
  if (last_changed_->has_value() && Equal(**last_changed_, values, budget)) {
    return Value::Bool(false);
  }
  *last_changed_ = values;
  return Value::Bool(true);
}

Value Loop::Call(const CallArguments&, Interpreter*) const {
  throw TemplateError("recursive loops are not supported");
}

Value FindGlobalFunction(std::string_view name) {
  for (const NamedFunction& function : kFunctions) {
    if (function.name == name) {
      return Value::MakeObject(std::make_shared<GlobalFunction>(function.body));
    }
  }
  return Value::Undefined(std::string(name));
}

}  // namespace refrain::engine::jinja
