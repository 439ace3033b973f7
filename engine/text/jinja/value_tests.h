#ifndef REFRAIN_ENGINE_TEXT_JINJA_VALUE_TESTS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_VALUE_TESTS_H_

#include <string_view>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/call_arguments.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// What may stand behind `is`.
bool IsValueTest(std::string_view name);
bool ApplyValueTest(std::string_view name, const Value& value, const CallArguments& arguments,
                    Budget* budget);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_VALUE_TESTS_H_
