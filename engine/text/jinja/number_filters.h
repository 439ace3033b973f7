#ifndef REFRAIN_ENGINE_TEXT_JINJA_NUMBER_FILTERS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_NUMBER_FILTERS_H_

#include "engine/text/jinja/filter_call.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// jinja2's filters `int`, `float`, `abs` and `round`.
Value ToInteger(const FilterCall& call);
Value ToFloat(const FilterCall& call);
Value Absolute(const FilterCall& call);
Value Round(const FilterCall& call);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_NUMBER_FILTERS_H_
