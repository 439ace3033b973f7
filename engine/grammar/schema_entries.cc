#include "engine/grammar/schema_entries.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/constant_values.h"

namespace refrain::engine {
namespace {

constexpr size_t kMostEntries = size_t{1} << 16;
// Of the text of a constant, which alternatives beside it copy.
constexpr size_t kBytesPerStep = 8;

}  // namespace

absl::StatusOr<SchemaEntry*> SchemaEntries::Find(SchemaParts unread) {
  absl::StatusOr<SchemaParts> parts = reader_.Simplify(std::move(unread));
  if (!parts.ok()) return parts.status();
  const auto found = entries_.find(*parts);
  if (found != entries_.end()) return found->second.get();
  if (entries_.size() == kMostEntries) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schema is too large: it has over ", kMostEntries, " schemas in it"));
  }
  absl::StatusOr<SchemaFacts> facts = reader_.Read(*parts);
  if (!facts.ok()) return facts.status();

  auto entry = std::make_unique<SchemaEntry>();
  entry->parts = *parts;
  entry->facts = *std::move(facts);
  const bool has_alternatives = !entry->facts.alternatives.empty();
  if (entry->facts.values && !has_alternatives) {
    const auto allowed = AllowedValues(entry->facts);
    if (!allowed.ok()) return allowed.status();
    for (const SchemaValue* value : *allowed) {
      entry->texts.push_back(JsonText(*value));
      absl::Status done = reader_.work().Do(1 + entry->texts.back().size() / kBytesPerStep);
      if (!done.ok()) return done;
    }
  }
  const bool is_contradiction = entry->facts.types.empty() ||
                                (entry->facts.values && entry->texts.empty() && !has_alternatives);
  entry->is_nothing = (entry->facts.is_nothing || is_contradiction) && !entry->facts.or_null;
  if (entry->is_nothing && !entry->facts.is_nothing) {
    absl::Status impossible = Impossible(
        *entry, entry->facts.values ? "allows none of its values" : "allows no type of value");
    if (!impossible.ok()) return impossible;
  }
  return entries_.emplace(*std::move(parts), std::move(entry)).first->second.get();
}

// Those that allow anything; at least one.
absl::StatusOr<std::vector<SchemaEntry*>> SchemaEntries::FindAlternatives(const SchemaEntry& entry,
                                                                          const SchemaValue& list) {
  const bool stands_alone = !entry.facts.says_anything && entry.facts.alternatives.size() == 1;
  const auto parts_of = [&](const SchemaValue& alternative) {
    if (stands_alone) return SchemaParts{.schemas = {&alternative}};
    SchemaParts parts = entry.parts;
    parts.schemas.push_back(&alternative);
    parts.settled.push_back(&list);
    return parts;
  };
  std::vector<SchemaEntry*> found;
  std::vector<Alternative> described;
  const bool is_one_of = hold_ == SchemaHold::kAll && list.parent->FindOrNull("oneOf") == &list;
  for (size_t i = 0; i < list.items.size(); ++i) {
    const absl::StatusOr<SchemaEntry*> alternative = Find(parts_of(list.items[i]));
    if (!alternative.ok()) return alternative.status();
    if ((*alternative)->is_nothing) continue;
    found.push_back(*alternative);
    if (!is_one_of) continue;
    absl::StatusOr<Alternative> description = Describe(**alternative, i);
    if (!description.ok()) return description.status();
    described.push_back(*std::move(description));
  }
  if (found.empty()) return SchemaError(list, "has no alternative that allows anything");
  if (!is_one_of || found.size() == 1) return found;

  const SchemaValue* discriminator = list.parent->FindOrNull("discriminator");
  const SchemaValue* preferred =
      discriminator == nullptr ? nullptr : discriminator->FindOrNull("propertyName");
  const auto required =
      TellApart(list, described, preferred == nullptr ? "" : std::string_view(preferred->text),
                &reader_.work());
  if (!required.ok()) return required.status();
  for (size_t i = 0; i < found.size(); ++i) {
    if ((*required)[i].empty()) continue;
    SchemaParts parts = found[i]->parts;
    parts.required.insert(parts.required.end(), (*required)[i].begin(), (*required)[i].end());
    const absl::StatusOr<SchemaEntry*> alternative = Find(std::move(parts));
    if (!alternative.ok()) return alternative.status();
    found[i] = *alternative;
  }
  return found;
}

absl::StatusOr<Alternative> SchemaEntries::Describe(const SchemaEntry& entry, size_t index) {
  const SchemaFacts& facts = entry.facts;
  Alternative alternative{
      .index = index, .drawn_types = facts.types, .valid_types = facts.said_types};
  if (facts.values && facts.alternatives.empty()) {
    alternative.values.emplace();
    alternative.drawn_types = TypeSet();
    const auto allowed = AllowedValues(facts);
    if (!allowed.ok()) return allowed.status();
    for (const SchemaValue* value : *allowed) {
      alternative.values->insert(ComparableText(*value));
      alternative.drawn_types = alternative.drawn_types | TypeOf(*value);
    }
    alternative.valid_types = alternative.drawn_types;
  }
  if (facts.or_null) {
    alternative.drawn_types = alternative.drawn_types | TypeSet::Null();
    alternative.valid_types = alternative.valid_types | TypeSet::Null();
    alternative.values.reset();
  }
  alternative.has_others = facts.objects.is_any || facts.objects.further_value.has_value() ||
                           !facts.alternatives.empty();
  for (const SchemaFacts::Property& property : facts.objects.properties) {
    alternative.names.insert(property.name);
    if (property.is_required) alternative.required.insert(property.name);
    const absl::StatusOr<SchemaEntry*> value = Find(property.value);
    if (!value.ok()) return value.status();
    const SchemaFacts& of_value = (*value)->facts;
    if (!of_value.values || of_value.or_null) continue;
    Alternative::Constant constant{.name = property.name, .is_required = property.is_required};
    for (const SchemaValue* one : *of_value.values) constant.values.insert(ComparableText(*one));
    alternative.constants.push_back(std::move(constant));
  }
  std::ranges::sort(alternative.constants, std::less<>(), &Alternative::Constant::name);
  return alternative;
}

absl::Status SchemaEntries::Impossible(const SchemaEntry& entry, std::string_view what) {
  if (!entry.parts.settled.empty()) return absl::OkStatus();
  return SchemaError(*entry.facts.place, what);
}

}  // namespace refrain::engine
