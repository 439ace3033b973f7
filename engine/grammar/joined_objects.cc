#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "engine/grammar/schema_part.h"

namespace refrain::engine {
namespace {

using enum SchemaKeyword;
using Kind = SchemaValue::Kind;

absl::Status CheckKind(const SchemaValue* value, Kind kind, std::string_view what) {
  return value == nullptr || value->is(kind) ? absl::OkStatus() : SchemaError(*value, what);
}

// Puts the properties of several schemas together, in the order in which they are named first.
class ObjectJoin {
 public:
  ObjectJoin(SchemaWork* work, SchemaFacts* facts)
      : work_(*work), facts_(*facts), objects_(facts->objects) {}

  absl::Status Read(const SchemaPart& part) {
    for (const SchemaKeyword keyword : {kProperties, kPatternProperties}) {
      if (auto kind = CheckKind(part[keyword], Kind::kObject, "is not an object"); !kind.ok()) {
        return kind;
      }
    }
    if (auto read = ReadProperties(part); !read.ok()) return read;
    if (auto read = ReadFurther(part); !read.ok()) return read;
    if (const SchemaValue* names = part[kPropertyNames]) {
      objects_.names.push_back(names);
      says_anything_ = true;
    }
    return ReadCounts(part);
  }

  absl::Status ReadRequired(const SchemaPart& part) {
    const SchemaValue* required = part[kRequired];
    if (required == nullptr) return absl::OkStatus();
    if (auto kind = CheckKind(required, Kind::kArray, "is not an array"); !kind.ok()) return kind;
    for (const SchemaValue& name : required->items) {
      if (auto kind = CheckKind(&name, Kind::kString, "is not a string"); !kind.ok()) return kind;
      Require(name.text);
    }
    return work_.Do(required->items.size());
  }

  void Require(std::string_view name) { PropertyNamed(name).is_required = true; }

  // What additionalProperties of one schema says of the properties that others name. What is
  // unevaluated for a schema is hard to say where it is one of several: more is left out.
  absl::Status HoldOthers(const SchemaPart& part, bool sees_all) {
    const SchemaValue* others = part[kAdditionalProperties];
    const SchemaValue* unevaluated = part[kUnevaluatedProperties];
    if (others == nullptr && !sees_all) others = unevaluated;
    if (others == nullptr && unevaluated != nullptr) return HoldUnevaluated(*unevaluated);
    if (others == nullptr || others->is_true()) return absl::OkStatus();
    std::vector<std::string_view> own;
    if (const SchemaValue* properties = part[kProperties]) {
      for (const SchemaValue::Member& member : properties->members) own.push_back(member.name);
    }
    std::sort(own.begin(), own.end());
    for (SchemaFacts::Property& property : objects_.properties) {
      if (!std::binary_search(own.begin(), own.end(), property.name)) {
        property.value.schemas.push_back(others);
      }
    }
    return work_.Do(own.size() + objects_.properties.size());
  }

  // The same where it sees what all of them say.
  absl::Status HoldUnevaluated(const SchemaValue& unevaluated) {
    for (SchemaFacts::Property& property : objects_.properties) {
      if (property.value.schemas.empty()) property.value.schemas.push_back(&unevaluated);
    }
    return work_.Do(objects_.properties.size());
  }

  void Finish() {
    const bool has_names = !objects_.properties.empty();
    objects_.is_any = !says_anything_ && !has_names;
    if (num_patterns_ > 1 || (num_patterns_ > 0 && (has_names || num_parts_ > 1))) {
      facts_.unsupported.push_back({pattern_properties_, TypeSet::Object()});
      // Where that is left out, properties of other names may be anything.
      objects_.further_pattern.reset();
      further_ = SchemaParts();
      is_closed_ = false;
    }
    if (!is_closed_) objects_.further_value = std::move(further_);
  }

 private:
  SchemaFacts::Property& PropertyNamed(std::string_view name) {
    const auto [found, is_new] = index_.try_emplace(name, objects_.properties.size());
    if (is_new) objects_.properties.push_back({.name = name});
    return objects_.properties[found->second];
  }

  absl::Status ReadProperties(const SchemaPart& part) {
    const SchemaValue* properties = part[kProperties];
    if (properties == nullptr) return absl::OkStatus();
    for (const SchemaValue::Member& member : properties->members) {
      PropertyNamed(member.name).value.schemas.push_back(&member.value);
    }
    says_anything_ = true;
    return work_.Do(properties->members.size());
  }

  absl::Status ReadFurther(const SchemaPart& part) {
    const SchemaValue* others = part[kAdditionalProperties];
    const SchemaValue* patterns = part[kPatternProperties];
    const SchemaValue* unevaluated = part[kUnevaluatedProperties];
    if (patterns != nullptr && !patterns->members.empty()) {
      num_patterns_ += patterns->members.size();
      pattern_properties_ = patterns;
      const SchemaValue::Member& first = patterns->members.front();
      objects_.further_pattern = SchemaFacts::Pattern{first.name, &first.value};
      further_.schemas.push_back(&first.value);
      says_anything_ = true;
    } else if (others != nullptr) {
      further_.schemas.push_back(others);
      is_closed_ = is_closed_ || others->is_false();
      says_anything_ = says_anything_ || !others->is_true();
    } else {
      // What a schema has no word for is left out where it names properties.
      is_closed_ = is_closed_ || part[kProperties] != nullptr;
    }
    if (unevaluated != nullptr && !unevaluated->is_true()) {
      if (!unevaluated->is_false()) facts_.unsupported.push_back({unevaluated, TypeSet::Object()});
      const bool leaves_any = others == nullptr && num_patterns_ == 0;
      is_closed_ = is_closed_ || leaves_any;
      says_anything_ = true;
    }
    const bool is_part = part[kProperties] != nullptr || others != nullptr || patterns != nullptr;
    num_parts_ += is_part ? 1 : 0;
    return absl::OkStatus();
  }

  absl::Status ReadCounts(const SchemaPart& part) {
    const auto keep = [&](const SchemaValue* value, const SchemaValue** kept,
                          bool more_is_stricter) {
      if (value == nullptr) return absl::OkStatus();
      const absl::StatusOr<int> count = ReadCount(*value);
      if (!count.ok()) return count.status();
      if (more_is_stricter && *count == 0) return absl::OkStatus();
      says_anything_ = true;
      const bool is_stricter =
          *kept == nullptr || (more_is_stricter == (*count > *ReadCount(**kept)));
      if (is_stricter) *kept = value;
      return absl::OkStatus();
    };
    absl::Status least = keep(part[kMinProperties], &objects_.min_properties, true);
    if (!least.ok()) return least;
    return keep(part[kMaxProperties], &objects_.max_properties, false);
  }

  SchemaWork& work_;
  SchemaFacts& facts_;
  SchemaFacts::Objects& objects_;
  std::map<std::string_view, size_t> index_;  // of objects_.properties
  SchemaParts further_;
  bool is_closed_ = false;
  bool says_anything_ = false;  // beside names
  size_t num_parts_ = 0;        // that say which properties there are
  size_t num_patterns_ = 0;
  const SchemaValue* pattern_properties_ = nullptr;
};

}  // namespace

absl::Status JoinObjects(const SchemaParts& whole, std::span<const SchemaPart> parts,
                         SchemaWork* work, SchemaFacts* facts) {
  ObjectJoin join(work, facts);
  for (const SchemaPart& part : parts) {
    if (absl::Status read = join.Read(part); !read.ok()) return read;
  }
  for (const SchemaPart& part : parts) {
    if (absl::Status read = join.ReadRequired(part); !read.ok()) return read;
  }
  for (const std::string_view name : whole.required) join.Require(name);
  // All others are below it: it, `$ref` and `allOf` of it, and alternatives of these.
  const bool first_sees_all = whole.schemas.size() == 1 + whole.settled.size();
  for (const SchemaPart& part : parts) {
    absl::Status held = join.HoldOthers(part, first_sees_all && &part == parts.data());
    if (!held.ok()) return held;
  }
  join.Finish();
  return absl::OkStatus();
}

}  // namespace refrain::engine
