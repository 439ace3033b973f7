#ifndef REFRAIN_ENGINE_TEXT_JINJA_BATCHES_H_
#define REFRAIN_ENGINE_TEXT_JINJA_BATCHES_H_

#include <cstdint>
#include <optional>

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace refrain::engine::jinja {

// jinja2's `batch`: the items as lists of `size` each, the last one filled up where there is
// something to fill it with. A size of 0 begins with an empty list, a negative one makes a single
// list.
Value::List CutIntoBatches(const Value::List& items, int64_t size,
                           const std::optional<Value>& fill_with, Budget* budget);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_BATCHES_H_
