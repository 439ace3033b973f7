#include "engine/grammar/schema_reader.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/grammar/string_formats.h"

namespace refrain::engine {
namespace {

using enum SchemaKeyword;
using Kind = SchemaValue::Kind;

constexpr int kMostStandIns = 64;
constexpr size_t kBytesPerStep = 8;  // of the texts of constants

absl::Status LeadsBack(const SchemaValue& schema) {
  return SchemaError(schema, "leads back to itself before it describes anything");
}

absl::Status CheckSchema(const SchemaValue& schema) {
  if (schema.is(Kind::kObject) || schema.is(Kind::kBoolean)) return absl::OkStatus();
  return SchemaError(schema, "is no schema: neither an object nor a boolean");
}

absl::Status CheckList(const SchemaValue& list) {
  if (list.is(Kind::kArray) && !list.items.empty()) return absl::OkStatus();
  return SchemaError(list, "is not an array of schemas");
}

absl::StatusOr<TypeSet> ReadType(const SchemaValue& type) {
  const auto named = [](const SchemaValue& name) -> absl::StatusOr<TypeSet> {
    if (!name.is(Kind::kString)) return SchemaError(name, "is not the name of a type");
    const std::optional<TypeSet> types = TypeSet::Named(name.text);
    if (types) return *types;
    return SchemaError(name, absl::StrCat("is ", ShownString(name.text),
                                          "; the types are null, boolean, object, array, string, "
                                          "integer and number"));
  };
  if (!type.is(Kind::kArray)) return named(type);
  TypeSet types;
  for (const SchemaValue& name : type.items) {
    const absl::StatusOr<TypeSet> one = named(name);
    if (!one.ok()) return one.status();
    types = types | *one;
  }
  return types;
}

absl::StatusOr<Decimal> ReadNumber(const SchemaValue& value) {
  if (!value.is(Kind::kNumber)) return SchemaError(value, "is not a number");
  return Decimal(value.text);
}

// A bound, and one that is exclusive: a bound itself or, as draft 4 has it, whether the other is.
absl::Status ReadBound(const SchemaValue* inclusive, const SchemaValue* exclusive,
                       NumberRange* range, void (NumberRange::*add)(NumberRange::Bound)) {
  const bool is_flag = exclusive != nullptr && exclusive->is(Kind::kBoolean);
  if (inclusive != nullptr) {
    const absl::StatusOr<Decimal> value = ReadNumber(*inclusive);
    if (!value.ok()) return value.status();
    (range->*add)({*value, is_flag && exclusive->is_true()});
  }
  if (exclusive != nullptr && !is_flag) {
    const absl::StatusOr<Decimal> value = ReadNumber(*exclusive);
    if (!value.ok()) return value.status();
    (range->*add)({*value, true});
  }
  return absl::OkStatus();
}

absl::Status JoinNumbers(const SchemaPart& part, SchemaFacts* facts) {
  NumberRange& range = facts->numbers;
  absl::Status lower =
      ReadBound(part[kMinimum], part[kExclusiveMinimum], &range, &NumberRange::AddLower);
  if (!lower.ok()) return lower;
  absl::Status upper =
      ReadBound(part[kMaximum], part[kExclusiveMaximum], &range, &NumberRange::AddUpper);
  if (!upper.ok()) return upper;
  const SchemaValue* multiple_of = part[kMultipleOf];
  if (multiple_of == nullptr) return absl::OkStatus();
  const absl::StatusOr<Decimal> value = ReadNumber(*multiple_of);
  if (!value.ok()) return value.status();
  if (*value <= Decimal()) return SchemaError(*multiple_of, "is not greater than 0");
  if (range.multiple_of && *range.multiple_of != *value) {
    facts->unsupported.push_back({multiple_of, TypeSet::Number()});
  }
  range.multiple_of = *value;
  return absl::OkStatus();
}

absl::Status JoinStrings(const SchemaPart& part, SchemaFacts::Strings* strings) {
  if (part[kMinLength] != nullptr) {
    const absl::StatusOr<int> least = ReadCount(*part[kMinLength]);
    if (!least.ok()) return least.status();
    strings->min_length = std::max(strings->min_length, *least);
  }
  if (part[kMaxLength] != nullptr) {
    const absl::StatusOr<int> most = ReadCount(*part[kMaxLength]);
    if (!most.ok()) return most.status();
    strings->max_length = std::min(strings->max_length.value_or(*most), *most);
  }
  for (const auto& [value, list] : {std::pair(part[kPattern], &strings->patterns),
                                    std::pair(part[kFormat], &strings->formats)}) {
    if (value == nullptr) continue;
    if (!value->is(Kind::kString)) return SchemaError(*value, "is not a string");
    const bool says_nothing =
        list == &strings->formats && FindStringFormatOrNull(value->text) == nullptr;
    if (!says_nothing) list->push_back({value->text, value});
  }
  return absl::OkStatus();
}

// Values that all parts have.
absl::Status JoinValues(const SchemaPart& part, SchemaWork* work, SchemaFacts* facts) {
  std::vector<std::vector<const SchemaValue*>> lists;
  if (const SchemaValue* values = part[kEnum]) {
    if (!values->is(Kind::kArray)) return SchemaError(*values, "is not an array");
    auto& list = lists.emplace_back();
    for (const SchemaValue& value : values->items) list.push_back(&value);
  }
  if (part[kConst] != nullptr) lists.push_back({part[kConst]});
  for (const std::vector<const SchemaValue*>& list : lists) {
    std::set<std::string> wanted;  // those before
    if (facts->values) {
      for (const SchemaValue* value : *facts->values) wanted.insert(ComparableText(*value));
    }
    std::set<std::string> seen;
    std::vector<const SchemaValue*> kept;
    size_t steps = wanted.size();
    for (const SchemaValue* value : list) {
      std::string text = ComparableText(*value);
      steps += 1 + text.size() / kBytesPerStep;
      if (facts->values && !wanted.contains(text)) continue;
      if (seen.insert(std::move(text)).second) kept.push_back(value);
    }
    if (absl::Status done = work->Do(steps); !done.ok()) return done;
    facts->values = std::move(kept);
  }
  return absl::OkStatus();
}

// The types that keywords without a `type` are meant for.
TypeSet MeantTypes(const SchemaFacts& facts) {
  TypeSet meant;
  if (!facts.objects.is_any) meant = meant | TypeSet::Object();
  if (!facts.arrays.is_any) meant = meant | TypeSet::Array();
  if (!facts.strings.is_any()) meant = meant | TypeSet::String();
  if (!facts.numbers.is_any()) meant = meant | TypeSet::Number();
  return meant;
}

// `not` of all values leaves none; of some, it is not supported.
absl::Status JoinNot(const SchemaValue* negated, SchemaFacts* facts) {
  if (negated == nullptr || negated->is_false()) return absl::OkStatus();
  if (negated->is_true() || (negated->is(Kind::kObject) && negated->members.empty())) {
    facts->is_nothing = true;
    return absl::OkStatus();
  }
  facts->unsupported.push_back({negated, TypeSet::All()});
  return absl::OkStatus();
}

}  // namespace

// The schemas that hold together, found through `$ref` and `allOf`: those of `whole` and below.
class SchemaReader::PartList {
 public:
  PartList(const SchemaParts& whole, SchemaReferences* references, SchemaWork* work,
           SchemaFacts* facts)
      : whole_(whole), references_(*references), work_(*work), facts_(*facts) {}

  absl::Status Gather() {
    for (const SchemaValue* schema : whole_.schemas) {
      stack_.push_back({schema, false});
      while (!stack_.empty()) {
        const Visit visit = stack_.back();
        stack_.pop_back();
        if (visit.is_left) {
          is_open_[visit.schema] = false;
          continue;
        }
        if (absl::Status entered = Enter(*visit.schema); !entered.ok()) return entered;
      }
    }
    return absl::OkStatus();
  }

  std::span<const SchemaPart> parts() const { return parts_; }

 private:
  struct Visit {
    const SchemaValue* schema;
    bool is_left;
  };

  absl::Status Enter(const SchemaValue& schema) {
    if (absl::Status checked = CheckSchema(schema); !checked.ok()) return checked;
    const auto [place, is_new] = is_open_.try_emplace(&schema, true);
    if (!is_new) {
      const bool leads_back = place->second || has_settled_.contains(&schema);
      return leads_back ? LeadsBack(schema) : absl::OkStatus();
    }
    stack_.push_back({&schema, true});
    if (schema.is_false()) facts_.is_nothing = true;
    if (schema.is(Kind::kBoolean)) return absl::OkStatus();
    if (absl::Status done = work_.Do(schema.members.size() + 1); !done.ok()) return done;
    SchemaPart part(&schema);
    if (absl::Status read = ReadKeywords(schema, &part); !read.ok()) return read;
    if (absl::Status read = ReadAlternatives(part); !read.ok()) return read;
    if (absl::Status pushed = PushParts(part); !pushed.ok()) return pushed;
    parts_.push_back(part);
    return absl::OkStatus();
  }

  absl::Status ReadKeywords(const SchemaValue& schema, SchemaPart* part) {
    for (const SchemaValue::Member& member : schema.members) {
      const KeywordMeaning meaning = MeaningOfKeyword(member.name);
      const bool is_of_place = meaning.keyword == kId && schema.parent != nullptr;
      if (meaning.keyword == kUnsupported || is_of_place) {
        facts_.unsupported.push_back({&member.value, meaning.applies_to});
      } else {
        part->Set(meaning.keyword, &member.value);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadAlternatives(const SchemaPart& part) {
    for (const SchemaKeyword keyword : {kAnyOf, kOneOf}) {
      const SchemaValue* list = part[keyword];
      if (list == nullptr) continue;
      if (absl::Status checked = CheckList(*list); !checked.ok()) return checked;
      if (std::ranges::count(whole_.settled, list) > 0) {
        has_settled_.insert(&part.schema());
      } else {
        facts_.alternatives.push_back(list);
      }
    }
    return absl::OkStatus();
  }

  // Taken from the stack in the order of the schema.
  absl::Status PushParts(const SchemaPart& part) {
    if (const SchemaValue* all = part[kAllOf]) {
      if (absl::Status checked = CheckList(*all); !checked.ok()) return checked;
      for (auto item = all->items.rbegin(); item != all->items.rend(); ++item) {
        stack_.push_back({&*item, false});
      }
    }
    if (part[kRef] != nullptr) {
      const absl::StatusOr<const SchemaValue*> target = references_.Resolve(*part[kRef]);
      if (!target.ok()) return target.status();
      stack_.push_back({*target, false});
    }
    return absl::OkStatus();
  }

  const SchemaParts& whole_;
  SchemaReferences& references_;
  SchemaWork& work_;
  SchemaFacts& facts_;
  std::vector<Visit> stack_;
  std::map<const SchemaValue*, bool> is_open_;  // of those entered: not left yet
  std::set<const SchemaValue*> has_settled_;    // an alternative of theirs is one of `whole`
  std::vector<SchemaPart> parts_;
};

absl::StatusOr<const SchemaValue*> SchemaReader::StandInOrNull(const SchemaValue& schema) {
  const SchemaValue* found = nullptr;
  bool is_reference = false;
  for (const SchemaValue::Member& member : schema.members) {
    const SchemaKeyword keyword = MeaningOfKeyword(member.name).keyword;
    if (absl::Status done = work_.Do(1); !done.ok()) return done;
    if (keyword == kAnnotation) continue;
    const bool is_list = keyword == kAllOf || keyword == kAnyOf || keyword == kOneOf;
    const bool is_one = is_list && member.value.items.size() == 1;
    if (found != nullptr || !(keyword == kRef || is_one)) return nullptr;
    is_reference = keyword == kRef;
    found = is_one ? member.value.items.data() : &member.value;
  }
  if (is_reference) return references_.Resolve(*found);
  return found;
}

absl::StatusOr<SchemaParts> SchemaReader::Simplify(SchemaParts parts) {
  for (const SchemaValue*& schema : parts.schemas) {
    const SchemaValue* const first = schema;
    for (int steps = 0;; ++steps) {
      const absl::StatusOr<const SchemaValue*> stand_in = StandInOrNull(*schema);
      if (!stand_in.ok()) return stand_in.status();
      if (*stand_in == nullptr) break;
      if (*stand_in == first) return LeadsBack(*first);
      if (steps == kMostStandIns) {
        return SchemaError(*first, absl::StrCat("leads through more than ", kMostStandIns,
                                                " other schemas, or back to itself"));
      }
      schema = *stand_in;
    }
  }
  return parts;
}

absl::StatusOr<SchemaFacts> SchemaReader::Read(const SchemaParts& whole) {
  SchemaFacts facts;
  if (!whole.schemas.empty()) facts.place = whole.schemas.front();
  PartList list(whole, &references_, &work_, &facts);
  if (absl::Status gathered = list.Gather(); !gathered.ok()) return gathered;

  const bool is_alternative = !whole.settled.empty();
  bool has_type = false;
  for (const SchemaPart& part : list.parts()) {
    const SchemaValue* nullable = part[kNullable];
    if (nullable != nullptr && !nullable->is(Kind::kBoolean)) {
      return SchemaError(*nullable, "is not a boolean");
    }
    const bool is_nullable = nullable != nullptr && nullable->is_true();
    if (part[kType] != nullptr) {
      const absl::StatusOr<TypeSet> types = ReadType(*part[kType]);
      if (!types.ok()) return types.status();
      facts.types = facts.types & (is_nullable ? *types | TypeSet::Null() : *types);
      has_type = true;
    } else if (is_nullable && &part == list.parts().data() &&
               whole.schemas.size() == 1 + whole.settled.size()) {
      facts.or_null = !is_alternative;  // else null is one beside it
    } else if (is_nullable) {
      facts.unsupported.push_back({nullable, TypeSet::All()});
    }
    if (absl::Status joined = JoinNot(part[kNot], &facts); !joined.ok()) return joined;
    if (absl::Status joined = JoinValues(part, &work_, &facts); !joined.ok()) return joined;
    if (absl::Status joined = JoinNumbers(part, &facts); !joined.ok()) return joined;
    if (absl::Status joined = JoinStrings(part, &facts.strings); !joined.ok()) return joined;
  }
  if (absl::Status joined = JoinArrays(list.parts(), &facts); !joined.ok()) return joined;
  absl::Status joined = JoinObjects(whole, list.parts(), &work_, &facts);
  if (!joined.ok()) return joined;

  const TypeSet meant = MeantTypes(facts);
  facts.says_anything =
      has_type || facts.values || facts.is_nothing || !meant.empty() || !facts.unsupported.empty();
  facts.said_types = facts.types;
  if (!has_type && !facts.values && !meant.empty()) facts.types = meant;
  if (hold_ == SchemaHold::kWhatItCan) LeaveOutUnsupported(&facts);
  return facts;
}

void SchemaReader::LeaveOutUnsupported(SchemaFacts* facts) {
  facts->unsupported.clear();
  facts->arrays.unique_items = nullptr;
}

}  // namespace refrain::engine
