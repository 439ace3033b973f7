#include "engine/grammar/json_schema.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/array_rule.h"
#include "engine/grammar/constant_values.h"
#include "engine/grammar/number_range.h"
#include "engine/grammar/object_rule.h"
#include "engine/grammar/schema_entries.h"
#include "engine/grammar/string_rule.h"
#include "engine/grammar/text_choice.h"

namespace refrain::engine {
namespace {

using Kind = SchemaValue::Kind;

// Constants of so many bytes are drawn where they stand; of more, once as a rule.
constexpr size_t kTextsInPlaceBytes = 256;
// Alternatives within alternatives are drawn as rules of their own below so many.
constexpr int kMostWithin = 8;

std::string RequiresInVain(std::string_view name) {
  return absl::StrCat("requires the property ", ShownString(name), ", which may not be there");
}

// SchemaEntries::Impossible, of what else would say whether there is anything.
absl::StatusOr<bool> None(const SchemaEntry& entry, std::string_view what) {
  if (absl::Status impossible = SchemaEntries::Impossible(entry, what); !impossible.ok()) {
    return impossible;
  }
  return false;
}

// Draws the rules of a schema. Each is made when it is first called and drawn later, one after the
// other, so that schemas may refer to themselves and to long chains of others.
class SchemaDrawing {
 public:
  SchemaDrawing(const SchemaValue* root, SchemaHold hold, JsonRules* rules)
      : root_(*root),
        hold_(hold),
        entries_(root, hold),
        rules_(*rules),
        builder_(rules->builder()),
        strings_(rules) {}

  absl::StatusOr<RuleId> DrawAll() {
    const absl::StatusOr<Entry*> root = entries_.Find({.schemas = {&root_}});
    if (!root.ok()) return root.status();
    if ((*root)->is_nothing) return SchemaError(root_, "allows nothing");
    const RuleId rule = RuleOf(*root);
    for (size_t i = 0; i < called_.size() && !builder_.is_full(); ++i) {
      Entry* const entry = called_[i];
      const Ends ends{builder_.begin(*entry->rule), builder_.end(*entry->rule)};
      if (absl::Status drawn = Draw(*entry, entry, ends, 0); !drawn.ok()) return drawn;
    }
    if (absl::Status checked = CheckBeginnings(); !checked.ok()) return checked;
    return rule;
  }

 private:
  using Entry = SchemaEntry;
  struct Ends {
    NodeId from, to;
  };

  RuleId RuleOf(Entry* entry);
  std::optional<RuleId> RuleOfJsonOrNothing(const Entry& entry);

  // Draws what `entry` allows between the ends, in the rule of `host`.
  absl::Status Draw(const Entry& entry, Entry* host, const Ends& ends, int within);
  absl::Status DrawAlternatives(const Entry& entry, Entry* host, const Ends& ends, int within);
  absl::Status DrawTypes(const Entry& entry, const Ends& ends);
  absl::StatusOr<RuleId> RuleOfStrings(const SchemaFacts::Strings& strings);
  absl::Status DrawNumber(const Entry& entry, const Ends& ends);
  absl::Status DrawArray(const Entry& entry, const Ends& ends);
  absl::Status DrawObject(const Entry& entry, const Ends& ends);
  absl::Status AddFurther(const Entry& entry, ObjectRule* object);
  absl::Status NameFurther(const SchemaFacts::Strings& names, ObjectRule* object);
  // Whether there is any object yet.
  absl::StatusOr<bool> HoldNames(const Entry& entry, ObjectRule* object);
  absl::StatusOr<bool> ChooseNames(const std::vector<const SchemaValue*>& names, const Entry& entry,
                                   ObjectRule* object);
  absl::StatusOr<bool> HoldCounts(const Entry& entry, ObjectRule* object);

  ObjectRule::Value ValueOf(Entry* entry);
  absl::Status CheckBeginnings();

  const SchemaValue& root_;
  const SchemaHold hold_;
  SchemaEntries entries_;
  JsonRules& rules_;
  GrammarBuilder& builder_;
  StringRules strings_;
  std::map<std::string, RuleId> numbers_;  // rules, by what they are held to
  std::vector<Entry*> called_;  // those that have a rule of their own, in the order of the calls
};

RuleId SchemaDrawing::RuleOf(Entry* entry) {
  if (entry->rule) return *entry->rule;
  entry->rule = RuleOfJsonOrNothing(*entry);
  if (!entry->rule) {
    entry->rule = builder_.AddRule();
    called_.push_back(entry);
  }
  return *entry->rule;
}

// The rule of JSON that is all that the entry allows.
std::optional<RuleId> SchemaDrawing::RuleOfJsonOrNothing(const Entry& entry) {
  const SchemaFacts& facts = entry.facts;
  const bool says_more = facts.is_nothing || facts.or_null || facts.values ||
                         !facts.alternatives.empty() || !facts.unsupported.empty();
  if (says_more) return std::nullopt;
  const bool are_any = facts.objects.is_any && facts.arrays.is_any && facts.strings.is_any() &&
                       facts.numbers.is_any();
  if (facts.types == TypeSet::All() && are_any) return rules_.Value();
  if (facts.types == TypeSet::Null()) return rules_.Null();
  if (facts.types == TypeSet::Boolean()) return rules_.Boolean();
  if (facts.types == TypeSet::Object() && facts.objects.is_any) return rules_.Object();
  if (facts.types == TypeSet::Array() && facts.arrays.is_any) return rules_.Array();
  if (facts.types == TypeSet::String() && facts.strings.is_any()) return rules_.String();
  if (facts.types == TypeSet::Integer() && facts.numbers.is_any()) return rules_.Integer();
  if (facts.types == TypeSet::Number() && facts.numbers.is_any()) return rules_.Number();
  return std::nullopt;
}

absl::Status SchemaDrawing::Draw(const Entry& entry, Entry* host, const Ends& ends, int within) {
  if (entry.facts.or_null) builder_.AddCall(ends.from, rules_.Null(), ends.to);
  if (entry.facts.is_nothing) return absl::OkStatus();
  if (!entry.facts.alternatives.empty()) return DrawAlternatives(entry, host, ends, within);
  if (entry.facts.values) {
    AddOneOf(entry.texts, ends.from, ends.to, &builder_);
    return absl::OkStatus();
  }
  for (const SchemaFacts::Unsupported& unsupported : entry.facts.unsupported) {
    if (unsupported.applies_to.Overlaps(entry.facts.types)) {
      return SchemaError(*unsupported.place, "is not supported");
    }
  }
  return DrawTypes(entry, ends);
}

absl::Status SchemaDrawing::DrawAlternatives(const Entry& entry, Entry* host, const Ends& ends,
                                             int within) {
  const SchemaValue& list = *entry.facts.alternatives.front();
  const absl::StatusOr<std::vector<Entry*>> alternatives = entries_.FindAlternatives(entry, list);
  if (!alternatives.ok()) return alternatives.status();
  std::vector<std::string> texts;
  for (Entry* alternative : *alternatives) {
    if (builder_.is_full()) return absl::OkStatus();
    if (!alternative->texts.empty() && !alternative->facts.or_null) {
      texts.insert(texts.end(), alternative->texts.begin(), alternative->texts.end());
      continue;
    }
    // What nobody else refers to is drawn here: alternatives that begin alike are one place then.
    const SchemaValue* last = alternative->parts.schemas.back();
    const bool is_own = !alternative->parts.settled.empty() || last->parent == &list;
    if (is_own && within < kMostWithin && !RuleOfJsonOrNothing(*alternative)) {
      absl::Status drawn = Draw(*alternative, host, ends, within + 1);
      if (!drawn.ok()) return drawn;
    } else {
      builder_.AddCall(ends.from, RuleOf(alternative), ends.to);
      host->begins_with.push_back(alternative);
    }
  }
  AddOneOf(std::move(texts), ends.from, ends.to, &builder_);
  return absl::OkStatus();
}

absl::Status SchemaDrawing::DrawTypes(const Entry& entry, const Ends& ends) {
  const SchemaFacts& facts = entry.facts;
  const auto call = [&](RuleId rule) { builder_.AddCall(ends.from, rule, ends.to); };
  if (facts.types.Overlaps(TypeSet::Null())) call(rules_.Null());
  if (facts.types.Overlaps(TypeSet::Boolean())) call(rules_.Boolean());
  if (facts.types.Overlaps(TypeSet::Number())) {
    if (absl::Status drawn = DrawNumber(entry, ends); !drawn.ok()) return drawn;
  }
  if (facts.types.Overlaps(TypeSet::String())) {
    const absl::StatusOr<RuleId> rule = RuleOfStrings(facts.strings);
    if (rule.ok()) {
      call(*rule);
    } else if (!absl::IsNotFound(rule.status())) {
      return rule.status();
    } else if (auto status = SchemaEntries::Impossible(entry, std::string(rule.status().message()));
               !status.ok()) {
      return status;
    }
  }
  if (facts.types.Overlaps(TypeSet::Array())) {
    if (absl::Status drawn = DrawArray(entry, ends); !drawn.ok()) return drawn;
  }
  if (facts.types.Overlaps(TypeSet::Object())) return DrawObject(entry, ends);
  return absl::OkStatus();
}

absl::StatusOr<RuleId> SchemaDrawing::RuleOfStrings(const SchemaFacts::Strings& strings) {
  absl::StatusOr<RuleId> rule = strings_.Find(strings);
  const bool is_left_out = absl::IsInvalidArgument(rule.status()) && !strings.patterns.empty() &&
                           hold_ == SchemaHold::kWhatItCan;
  if (!is_left_out) return rule;
  SchemaFacts::Strings held = strings;
  std::erase_if(held.patterns, [this](const SchemaFacts::Pattern& pattern) {
    SchemaFacts::Strings alone;
    alone.patterns = {pattern};
    return absl::IsInvalidArgument(strings_.Find(alone).status());
  });
  rule = strings_.Find(held);
  if (!absl::IsInvalidArgument(rule.status())) return rule;
  held.patterns.clear();  // together they are too much
  return strings_.Find(held);
}

absl::Status SchemaDrawing::DrawNumber(const Entry& entry, const Ends& ends) {
  const bool is_integer = (entry.facts.types & TypeSet::Number()) == TypeSet::Integer();
  const NumberRange& range = entry.facts.numbers;
  if (range.is_any()) {
    const RuleId rule = is_integer ? rules_.Integer() : rules_.Number();
    builder_.AddCall(ends.from, rule, ends.to);
    return absl::OkStatus();
  }
  // Many properties have the same few ranges.
  const auto [rule, is_new] =
      numbers_.try_emplace((is_integer ? "integer " : "number ") + range.ToString());
  if (is_new) {
    rule->second = builder_.AddRule();
    const NumberForm form = is_integer ? NumberForm::kInteger : NumberForm::kDecimal;
    const absl::Status drawn =
        AddNumber(range, form, builder_.begin(rule->second), builder_.end(rule->second), &builder_);
    if (!drawn.ok()) numbers_.erase(rule);
    if (absl::IsNotFound(drawn))
      return SchemaEntries::Impossible(entry, std::string(drawn.message()));
    if (!drawn.ok()) return SchemaError(*entry.facts.place, std::string(drawn.message()));
  }
  builder_.AddCall(ends.from, rule->second, ends.to);
  return absl::OkStatus();
}

absl::Status SchemaDrawing::DrawArray(const Entry& entry, const Ends& ends) {
  const SchemaFacts::Arrays& arrays = entry.facts.arrays;
  if (arrays.is_any) {
    builder_.AddCall(ends.from, rules_.Array(), ends.to);
    return absl::OkStatus();
  }
  ArrayRule rule{.min_items = arrays.min_items, .max_items = arrays.max_items};
  if (arrays.unique_items != nullptr && arrays.max_items.value_or(2) > 1) {
    return SchemaError(*arrays.unique_items, "is not supported");
  }
  bool ends_early = false;
  for (const SchemaParts& parts : arrays.first) {
    const absl::StatusOr<Entry*> item = entries_.Find(parts);
    if (!item.ok()) return item.status();
    ends_early = (*item)->is_nothing;
    if (ends_early) break;
    rule.first.push_back(RuleOf(*item));
  }
  if (arrays.rest && !ends_early) {
    const absl::StatusOr<Entry*> item = entries_.Find(*arrays.rest);
    if (!item.ok()) return item.status();
    if (!(*item)->is_nothing) rule.rest = RuleOf(*item);
  }
  if (arrays.has_all_first) {
    const int first = static_cast<int>(rule.first.size());
    rule.min_items = std::min(first, arrays.max_items.value_or(first));
  }
  if (!rule.is_possible()) return SchemaEntries::Impossible(entry, "allows no number of items");
  AddArray(rule, ends.from, ends.to, &rules_);
  return absl::OkStatus();
}

absl::Status SchemaDrawing::DrawObject(const Entry& entry, const Ends& ends) {
  const SchemaFacts::Objects& objects = entry.facts.objects;
  if (objects.is_any) {
    builder_.AddCall(ends.from, rules_.Object(), ends.to);
    return absl::OkStatus();
  }
  ObjectRule object;
  for (const SchemaFacts::Property& property : objects.properties) {
    const absl::StatusOr<Entry*> value = entries_.Find(property.value);
    if (!value.ok()) return value.status();
    if (!(*value)->is_nothing) {
      object.properties.push_back({property.name, ValueOf(*value), property.is_required});
    } else if (property.is_required) {
      return SchemaEntries::Impossible(entry, RequiresInVain(property.name));
    } else {
      object.absent.push_back(property.name);
    }
  }
  if (absl::Status added = AddFurther(entry, &object); !added.ok()) return added;
  const absl::StatusOr<bool> has_names = HoldNames(entry, &object);
  if (!has_names.ok() || !*has_names) return has_names.status();
  const absl::StatusOr<bool> has_counts = HoldCounts(entry, &object);
  if (!has_counts.ok() || !*has_counts) return has_counts.status();
  AddObject(object, ends.from, ends.to, &rules_);
  return absl::OkStatus();
}

absl::Status SchemaDrawing::AddFurther(const Entry& entry, ObjectRule* object) {
  const SchemaFacts::Objects& objects = entry.facts.objects;
  if (!objects.further_value) return absl::OkStatus();
  const absl::StatusOr<Entry*> value = entries_.Find(*objects.further_value);
  if (!value.ok()) return value.status();
  if ((*value)->is_nothing) return absl::OkStatus();
  object->further = ObjectRule::Further{.value = ValueOf(*value)};
  SchemaFacts::Strings names;
  if (objects.further_pattern) names.patterns.push_back(*objects.further_pattern);
  // Any name may be one of them where none is named; else its rule leaves these out.
  return objects.properties.empty() ? NameFurther(names, object) : absl::OkStatus();
}

// Names are held to `propertyNames`.
absl::StatusOr<bool> SchemaDrawing::HoldNames(const Entry& entry, ObjectRule* object) {
  const SchemaFacts::Objects& objects = entry.facts.objects;
  if (objects.names.empty()) return true;
  const absl::StatusOr<Entry*> found = entries_.Find({.schemas = objects.names});
  if (!found.ok()) return found.status();
  const SchemaFacts& names = (*found)->facts;
  const bool allows_none = (*found)->is_nothing || !names.types.Overlaps(TypeSet::String());
  const bool is_plain = names.alternatives.empty() && names.unsupported.empty();
  if (allows_none) return ChooseNames({}, entry, object);
  if (is_plain && names.values && !objects.further_pattern) {
    const auto allowed = AllowedValues(names);
    if (!allowed.ok()) return allowed.status();
    return ChooseNames(*allowed, entry, object);
  }
  if (is_plain && !names.values && names.strings.is_any()) return true;
  const bool has_own = !object->properties.empty() || objects.further_pattern;
  if ((!is_plain || has_own) && hold_ == SchemaHold::kWhatItCan) return true;
  if (!is_plain || has_own) {
    return SchemaError(*objects.names.front(),
                       "is not supported but for a list of names, or "
                       "where no property is named otherwise");
  }
  if (absl::Status named = NameFurther(names.strings, object); !named.ok()) return named;
  return true;
}

absl::Status SchemaDrawing::NameFurther(const SchemaFacts::Strings& names, ObjectRule* object) {
  if (!object->further) return absl::OkStatus();
  const absl::StatusOr<RuleId> rule = RuleOfStrings(names);
  if (rule.ok()) {
    object->further->name = *rule;
  } else if (absl::IsNotFound(rule.status())) {
    object->further.reset();  // no name is one of them
  } else {
    return rule.status();
  }
  return absl::OkStatus();
}

// The properties become those of a list.
absl::StatusOr<bool> SchemaDrawing::ChooseNames(const std::vector<const SchemaValue*>& names,
                                                const Entry& entry, ObjectRule* object) {
  std::set<std::string_view> chosen;
  for (const SchemaValue* name : names) {
    if (name->is(Kind::kString)) chosen.insert(name->text);
  }
  std::set<std::string_view> taken(object->absent.begin(), object->absent.end());
  std::vector<ObjectRule::Property> kept;
  for (ObjectRule::Property& property : object->properties) {
    taken.insert(property.name);
    if (chosen.contains(property.name)) {
      kept.push_back(std::move(property));
    } else if (property.is_required) {
      return None(entry, RequiresInVain(property.name));
    }
  }
  for (const SchemaValue* name : names) {
    const bool is_free = name->is(Kind::kString) && !taken.contains(name->text);
    if (is_free && object->further) kept.push_back({name->text, object->further->value});
  }
  object->properties = std::move(kept);
  object->further.reset();
  return true;
}

// minProperties and maxProperties are held where what is required, or named, holds them.
absl::StatusOr<bool> SchemaDrawing::HoldCounts(const Entry& entry, ObjectRule* object) {
  const SchemaFacts::Objects& objects = entry.facts.objects;
  if (objects.min_properties != nullptr) {
    const int required = static_cast<int>(std::ranges::count_if(
        object->properties, [](const ObjectRule::Property& one) { return one.is_required; }));
    const absl::StatusOr<int> least = ReadCount(*objects.min_properties);
    object->is_empty_too = false;
    if (*least > std::max(required, 1) && hold_ == SchemaHold::kAll) {
      return SchemaError(*objects.min_properties, "is not supported");
    }
  }
  if (objects.max_properties != nullptr) {
    const absl::StatusOr<int> most = ReadCount(*objects.max_properties);
    const bool may_have_more =
        object->further || object->properties.size() > static_cast<size_t>(*most);
    if (may_have_more && hold_ == SchemaHold::kAll) {
      return SchemaError(*objects.max_properties, "is not supported");
    }
  }
  const bool is_empty = object->properties.empty() && !object->further;
  if (is_empty && !object->is_empty_too) return None(entry, "allows no number of properties");
  return true;
}

ObjectRule::Value SchemaDrawing::ValueOf(Entry* entry) {
  size_t num_bytes = 0;
  for (const std::string& text : entry->texts) num_bytes += text.size();
  const bool in_place = num_bytes > 0 && num_bytes <= kTextsInPlaceBytes && !entry->facts.or_null;
  if (in_place) return {.texts = entry->texts};
  return {.rule = RuleOf(entry)};
}

// A rule that comes back to itself over alternatives alone would never read anything.
absl::Status SchemaDrawing::CheckBeginnings() {
  for (Entry* const first : called_) {
    std::vector<Entry*> path = {first};
    while (!path.empty()) {
      Entry& entry = *path.back();
      entry.mark = entry.mark == Entry::Mark::kDone ? entry.mark : Entry::Mark::kOpen;
      if (entry.mark == Entry::Mark::kDone || entry.begins_with.empty()) {
        entry.mark = Entry::Mark::kDone;
        path.pop_back();
        continue;
      }
      Entry* const next = entry.begins_with.back();
      entry.begins_with.pop_back();
      if (next->mark == Entry::Mark::kOpen) {
        return SchemaError(*next->facts.place, "leads back to itself before it describes anything");
      }
      if (next->mark == Entry::Mark::kNew) path.push_back(next);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RuleId> AddJsonSchema(std::string_view schema_text, JsonRules* rules,
                                     SchemaHold hold) {
  const auto root = ParseSchema(schema_text);
  if (!root.ok()) return root.status();
  return SchemaDrawing(root->get(), hold, rules).DrawAll();
}

}  // namespace refrain::engine
