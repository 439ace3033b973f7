#include "engine/grammar/string_rule.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/look_ahead.h"
#include "engine/grammar/text_product.h"

namespace refrain::engine {
namespace {

using Strings = SchemaFacts::Strings;

// Of a string with a format and a length: counting takes an automaton of the format for each
// character, and none of them needs more.
constexpr int kMostCounted = 256;

// What a string is held to, as a key.
std::string KeyOf(const Strings& strings) {
  std::string key = absl::StrCat(strings.min_length, " ", strings.max_length.value_or(-1));
  for (const auto* list : {&strings.patterns, &strings.formats}) {
    for (const SchemaFacts::Pattern& pattern : *list) {
      absl::StrAppend(&key, " ", pattern.text.size(), ":", std::string(pattern.text));
    }
    key += "|";
  }
  return key;
}

constexpr GrammarBuilder::Limits kPartLimits = {
    .nodes = size_t{1} << 16, .states = size_t{1} << 13, .visits = size_t{1} << 19};
// That a part costs at least, and that a byte of its grammar does.
constexpr size_t kPartVisits = size_t{1} << 13;
constexpr size_t kBytesPerVisit = 8;

}  // namespace

absl::StatusOr<RuleId> StringRules::Find(const Strings& strings) {
  if (strings.max_length && *strings.max_length < strings.min_length) {
    return absl::NotFoundError("allows no string: its minLength is over its maxLength");
  }
  if (strings.is_any()) return rules_.String();
  const auto [found, is_new] = drawn_.try_emplace(KeyOf(strings), RuleId{});
  if (!is_new) return found->second;
  if (strings.patterns.empty() && strings.formats.empty()) {
    found->second = rules_.StringOfLength(strings.min_length, strings.max_length);
    return found->second;
  }
  GrammarBuilder& builder = rules_.builder();
  const RuleId rule = builder.AddRule();
  const NodeId begin = builder.AddLiteral(builder.begin(rule), "\"");
  const NodeId end = builder.AddNode(rule);
  builder.AddBytes(end, '"', '"', builder.end(rule));
  if (absl::Status drawn = Draw(strings, begin, end); !drawn.ok()) {
    drawn_.erase(found);
    return drawn;
  }
  found->second = rule;
  return rule;
}

// "/pattern, at byte 3: ...".
absl::Status StringRules::ErrorOf(const Part& part, const absl::Status& status) {
  constexpr std::string_view kSubject = "pattern";
  std::string what(status.message());
  what = what.starts_with(kSubject) ? what.substr(kSubject.size()) : ": " + what;
  const std::string of = part.is_whole ? "" : ", its part " + ShownString(part.pattern);
  return absl::InvalidArgumentError(absl::StrCat(PointerTo(*part.place), of, what));
}

absl::StatusOr<Grammar> StringRules::GrammarOf(const Part& part) {
  if (work_left_ == 0) {
    return SchemaError(*part.place,
                       "is one pattern too many of those that lengths and other "
                       "patterns stand beside");
  }
  GrammarBuilder builder(kPartLimits);
  JsonRules rules(&builder);
  const RuleId rule = builder.AddRule();
  absl::Status added =
      AddRegex(part.pattern, part.text, builder.begin(rule), builder.end(rule), &rules);
  if (!added.ok()) return ErrorOf(part, added);
  absl::StatusOr<Grammar> grammar = std::move(builder).Finish(rule);
  if (!grammar.ok()) return ErrorOf(part, grammar.status());
  work_left_ -= std::min(work_left_, kPartVisits + grammar->memory_bytes() / kBytesPerVisit);
  return grammar;
}

StringRules::Language StringRules::LanguageOf(const Strings& strings) {
  Language held{.min_characters = strings.min_length, .max_characters = strings.max_length};
  for (const SchemaFacts::Pattern& pattern : strings.patterns) {
    PatternParts parts = SplitLookAheads(pattern.text);
    const bool is_whole = parts.all_of.size() + parts.none_of.size() == 1;
    for (std::string& part : parts.all_of) {
      held.all_of.push_back({std::move(part), RegexText::kJsonString, pattern.place, is_whole});
    }
    for (std::string& part : parts.none_of) {
      held.none_of.push_back({std::move(part), RegexText::kJsonString, pattern.place, is_whole});
    }
  }
  if (!held.all_of.empty()) return held;
  for (const SchemaFacts::Pattern& named : strings.formats) {
    const StringFormat& format = *FindStringFormatOrNull(named.text);
    held.all_of.push_back({std::string(format.pattern), RegexText::kPlain, named.place});
  }
  if (strings.formats.size() == 1) {
    SimplifyLengths(*FindStringFormatOrNull(strings.formats.front().text), &held);
  }
  return held;
}

void StringRules::SimplifyLengths(const StringFormat& format, Language* held) {
  int& least = held->min_characters;
  std::optional<int>& most = held->max_characters;
  if (least <= format.shortest) least = 0;
  if (most && format.longest && *most >= *format.longest) most.reset();
  if (!most) return;
  if (!format.short_pattern.empty() && least <= StringFormat::kShortBytes) {
    most = std::min(*most, StringFormat::kShortBytes);
    held->all_of.front().pattern = format.short_pattern;
  } else {
    most = std::min(*most, std::max(kMostCounted, least));
  }
}

absl::Status StringRules::Draw(const Strings& strings, NodeId from, NodeId to) {
  const Language held = LanguageOf(strings);
  const Part& first = held.all_of.front();
  const bool is_alone = held.all_of.size() == 1 && held.none_of.empty() &&
                        held.min_characters == 0 && !held.max_characters;
  if (is_alone) {
    const absl::Status added = AddRegex(first.pattern, first.text, from, to, &rules_);
    return added.ok() ? added : ErrorOf(first, added);
  }
  TextProduct product{.min_characters = held.min_characters, .max_characters = held.max_characters};
  for (const auto& [parts, grammars] :
       {std::pair(&held.all_of, &product.all_of), std::pair(&held.none_of, &product.none_of)}) {
    for (const Part& part : *parts) {
      absl::StatusOr<Grammar> grammar = GrammarOf(part);
      if (!grammar.ok()) return grammar.status();
      grammars->push_back(*std::move(grammar));
    }
  }
  const absl::Status drawn = AddTextProduct(std::move(product), from, to, &rules_.builder());
  if (drawn.ok() || absl::IsNotFound(drawn)) return drawn;
  return SchemaError(*first.place, std::string(drawn.message()));
}

}  // namespace refrain::engine
