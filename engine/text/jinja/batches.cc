#include "engine/text/jinja/batches.h"

#include <utility>

namespace refrain::engine::jinja {

Value::List CutIntoBatches(const Value::List& items, int64_t size,
                           const std::optional<Value>& fill_with, Budget* budget) {
  Value::List batches, batch;
  // A list takes memory of its own, however few items it has.
  constexpr size_t kOwnItems = 4;
  const auto close = [&] {
    budget->Step();
    budget->List(batch.size() + kOwnItems);
    batches.push_back(Value::MakeList(std::exchange(batch, {})));
  };
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) close();
    batch.push_back(item);
  }
  const auto filled = static_cast<int64_t>(batch.size());
  if (filled > 0) {
    if (fill_with.has_value() && !fill_with->is_none() && filled < size) {
      budget->List(static_cast<size_t>(size));
      batch.resize(static_cast<size_t>(size), *fill_with);
    }
    close();
  }
  return batches;
}

}  // namespace refrain::engine::jinja
