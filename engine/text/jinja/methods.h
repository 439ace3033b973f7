#ifndef REFRAIN_ENGINE_TEXT_JINJA_METHODS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_METHODS_H_

#include <string_view>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/call_arguments.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// The methods of Python's str, dict and list that do not change their object.
// Whether any value has one of that name.
bool IsMethodName(std::string_view name);
bool HasMethod(const Value& object, std::string_view name);
Value CallMethod(const Value& object, std::string_view name, const CallArguments& arguments,
                 Budget* budget);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_METHODS_H_
