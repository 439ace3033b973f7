#include "engine/grammar/exclusive_alternatives.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

using Constant = Alternative::Constant;

bool AreDisjoint(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::ranges::none_of(a, [&](const std::string& value) { return b.contains(value); });
}

// Whether all have values, and no two the same: as lists of titled constants do, which are long.
bool HaveDifferentValues(const std::vector<Alternative>& alternatives) {
  std::set<std::string_view> seen;
  for (const Alternative& alternative : alternatives) {
    if (!alternative.values) return false;
    for (const std::string& value : *alternative.values) {
      if (!seen.insert(value).second) return false;
    }
  }
  return true;
}

// Whether a requires a property that is not drawn of b.
bool RequiresUnknown(const Alternative& a, const Alternative& b) {
  if (b.has_others) return false;
  return std::ranges::any_of(a.required,
                             [&](const std::string_view name) { return !b.names.contains(name); });
}

struct Difference {
  const Constant* a;
  const Constant* b;
};

// The property whose constants differ: the preferred one if it is there, else one that is required
// anyway.
std::optional<Difference> FindDifference(const Alternative& a, const Alternative& b,
                                         std::string_view preferred) {
  std::optional<Difference> found;
  auto in_b = b.constants.begin();
  for (const Constant& in_a : a.constants) {
    while (in_b != b.constants.end() && in_b->name < in_a.name) ++in_b;
    if (in_b == b.constants.end()) break;
    if (in_b->name != in_a.name || !AreDisjoint(in_a.values, in_b->values)) continue;
    const Difference difference{&in_a, &*in_b};
    if (in_a.name == preferred) return difference;
    const bool is_required = in_a.is_required && in_b->is_required;
    const bool better =
        !found || (is_required && !(found->a->is_required && found->b->is_required));
    if (better) found = difference;
  }
  return found;
}

}  // namespace

absl::StatusOr<std::vector<std::set<std::string_view>>> TellApart(
    const SchemaValue& place, const std::vector<Alternative>& alternatives,
    std::string_view preferred, SchemaWork* work) {
  const bool values_differ = HaveDifferentValues(alternatives);
  std::vector<std::set<std::string_view>> required(alternatives.size());
  for (size_t i = 0; i < alternatives.size() && !values_differ; ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Alternative& a = alternatives[i];
      const Alternative& b = alternatives[j];
      const size_t steps = 1 + a.constants.size() + b.constants.size() + a.required.size() +
                           b.required.size() + (a.values ? a.values->size() : 0);
      if (absl::Status done = work->Do(steps); !done.ok()) return done;
      const TypeSet shared = (a.drawn_types & b.valid_types) | (b.drawn_types & a.valid_types);
      if (shared.empty()) continue;
      if (a.values && b.values && AreDisjoint(*a.values, *b.values)) continue;
      if (shared == TypeSet::Object()) {
        if (const auto difference = FindDifference(a, b, preferred)) {
          required[i].insert(difference->a->name);
          required[j].insert(difference->b->name);
          continue;
        }
        if (RequiresUnknown(a, b) && RequiresUnknown(b, a)) continue;
      }
      return SchemaError(place,
                         absl::StrCat("has alternatives ", b.index, " and ", a.index,
                                      " that cannot be told apart: they need different types, or a "
                                      "property with different constants (or anyOf)"));
    }
  }
  return required;
}

}  // namespace refrain::engine
