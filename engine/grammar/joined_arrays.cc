#include <algorithm>

#include "engine/grammar/schema_part.h"

namespace refrain::engine {
namespace {

using enum SchemaKeyword;
using Kind = SchemaValue::Kind;

// The items of one schema. Draft 7 says `items` for `prefixItems`, and `additionalItems` for
// `items` beside it.
struct Items {
  const SchemaValue* first = nullptr;  // an array of schemas
  const SchemaValue* rest = nullptr;   // a schema
  bool is_closed = false;              // there are none but the first

  size_t num_first() const { return first == nullptr ? 0 : first->items.size(); }
};

absl::StatusOr<Items> ReadItems(const SchemaPart& part, SchemaFacts* facts) {
  Items items{.first = part[kPrefixItems], .rest = part[kItems]};
  if (items.first == nullptr && items.rest != nullptr && items.rest->is(Kind::kArray)) {
    items.first = items.rest;
    items.rest = part[kAdditionalItems];
  }
  if (items.first != nullptr && !items.first->is(Kind::kArray)) {
    return SchemaError(*items.first, "is not an array");
  }
  if (const SchemaValue* rest = part[kUnevaluatedItems]; rest != nullptr && !rest->is_true()) {
    if (!rest->is_false()) facts->unsupported.push_back({rest, TypeSet::Array()});
    if (items.rest == nullptr) items.rest = rest;
  }
  items.is_closed = items.rest != nullptr && items.rest->is_false();
  return items;
}

absl::Status ReadCounts(const SchemaPart& part, SchemaFacts::Arrays* arrays) {
  if (part[kMinItems] != nullptr) {
    const absl::StatusOr<int> least = ReadCount(*part[kMinItems]);
    if (!least.ok()) return least.status();
    arrays->min_items = std::max(arrays->min_items, *least);
  }
  if (part[kMaxItems] != nullptr) {
    const absl::StatusOr<int> most = ReadCount(*part[kMaxItems]);
    if (!most.ok()) return most.status();
    arrays->max_items = std::min(arrays->max_items.value_or(*most), *most);
  }
  const SchemaValue* unique = part[kUniqueItems];
  if (unique != nullptr && !unique->is(Kind::kBoolean)) {
    return SchemaError(*unique, "is not a boolean");
  }
  if (unique != nullptr && unique->is_true()) arrays->unique_items = unique;
  return absl::OkStatus();
}

}  // namespace

absl::Status JoinArrays(std::span<const SchemaPart> parts, SchemaFacts* facts) {
  SchemaFacts::Arrays& arrays = facts->arrays;
  std::vector<Items> of_parts;
  bool has_least = false;
  size_t num_first = 0;
  for (const SchemaPart& part : parts) {
    if (absl::Status counts = ReadCounts(part, &arrays); !counts.ok()) return counts;
    has_least = has_least || part[kMinItems] != nullptr;
    const absl::StatusOr<Items> items = ReadItems(part, facts);
    if (!items.ok()) return items.status();
    of_parts.push_back(*items);
    num_first = std::max(num_first, items->num_first());
  }
  // What a schema has no word for is left out where it names the first items, as with properties.
  bool is_closed = num_first > 0 && static_cast<size_t>(arrays.min_items) <= num_first;
  SchemaParts rest;
  for (const Items& items : of_parts) {
    if (items.is_closed) num_first = std::min(num_first, items.num_first());
    if (items.rest != nullptr) rest.schemas.push_back(items.rest);
  }
  if (!rest.schemas.empty()) is_closed = false;
  for (const Items& items : of_parts) is_closed = is_closed || items.is_closed;

  for (size_t i = 0; i < num_first; ++i) {
    SchemaParts& item = arrays.first.emplace_back();
    for (const Items& items : of_parts) {
      if (i < items.num_first()) {
        item.schemas.push_back(&items.first->items[i]);
      } else if (items.rest != nullptr) {
        item.schemas.push_back(items.rest);
      }
    }
  }
  arrays.is_any = num_first == 0 && !is_closed && rest.schemas.empty() && arrays.min_items == 0 &&
                  !arrays.max_items && arrays.unique_items == nullptr;
  if (!is_closed) arrays.rest = std::move(rest);
  arrays.has_all_first = !has_least;
  return absl::OkStatus();
}

}  // namespace refrain::engine
