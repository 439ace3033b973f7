#ifndef REFRAIN_ENGINE_TEXT_JINJA_FILTERS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_FILTERS_H_

#include <string_view>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/call_arguments.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// The filters of jinja2 that chat templates use; tojson as transformers defines it (no escaping of
// HTML). Apply throws TemplateError where the filter raises.
bool IsFilter(std::string_view name);
Value ApplyFilter(std::string_view name, const Value& input, const CallArguments& arguments,
                  Budget* budget);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_FILTERS_H_
