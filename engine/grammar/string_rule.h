#ifndef REFRAIN_ENGINE_GRAMMAR_STRING_RULE_H_
#define REFRAIN_ENGINE_GRAMMAR_STRING_RULE_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/grammar/json_rules.h"
#include "engine/grammar/regex_rule.h"
#include "engine/grammar/schema_facts.h"
#include "engine/grammar/string_formats.h"

namespace refrain::engine {

// The rules of JSON strings that are held to patterns, formats and lengths, equal ones drawn once.
// Beside a pattern a format says nothing: where both are given, the pattern is the format's.
// One thread.
class StringRules {
 public:
  // It outlives them.
  explicit StringRules(JsonRules* rules) : rules_(*rules) {}

  // With its quotes. INVALID_ARGUMENT naming the place of what is not understood, or of what leaves
  // no string.
  absl::StatusOr<RuleId> Find(const SchemaFacts::Strings& strings);

 private:
  // What a string is held to beside others, and where that stands.
  struct Part {
    std::string pattern;
    RegexText text;
    const SchemaValue* place;
    bool is_whole = true;  // all that stands there
  };

  struct Language {
    std::vector<Part> all_of;  // at least one
    std::vector<Part> none_of;
    int min_characters = 0;
    std::optional<int> max_characters;
  };

  static Language LanguageOf(const SchemaFacts::Strings& strings);
  // Leaves out bounds that hold for all of a format, of which fewer strings may be drawn.
  static void SimplifyLengths(const StringFormat& format, Language* held);
  static absl::Status ErrorOf(const Part& part, const absl::Status& status);
  absl::Status Draw(const SchemaFacts::Strings& strings, NodeId from, NodeId to);
  // A grammar of its own, to be held together with others.
  absl::StatusOr<Grammar> GrammarOf(const Part& part);

  JsonRules& rules_;
  // In visits of the subset construction, about: grammars that leave nothing in the builder cost
  // time all the same.
  size_t work_left_ = size_t{1} << 23;
  std::map<std::string, RuleId> drawn_;  // by what they are held to
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_STRING_RULE_H_
