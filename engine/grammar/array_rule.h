#ifndef REFRAIN_ENGINE_GRAMMAR_ARRAY_RULE_H_
#define REFRAIN_ENGINE_GRAMMAR_ARRAY_RULE_H_

#include <optional>
#include <vector>

#include "engine/grammar/json_rules.h"

namespace refrain::engine {

// What a JSON array may hold: its first items, each of a rule of its own, and others.
struct ArrayRule {
  std::vector<RuleId> first;
  std::optional<RuleId> rest;  // nothing: there are none but the first
  int min_items = 0;
  std::optional<int> max_items;

  // Whether there is such an array.
  bool is_possible() const;
};

// Draws it between two nodes. Space may stand behind `[` and `,`, and before `]`.
void AddArray(const ArrayRule& array, NodeId from, NodeId to, JsonRules* rules);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_ARRAY_RULE_H_
