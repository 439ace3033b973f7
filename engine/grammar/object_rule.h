#ifndef REFRAIN_ENGINE_GRAMMAR_OBJECT_RULE_H_
#define REFRAIN_ENGINE_GRAMMAR_OBJECT_RULE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/json_rules.h"

namespace refrain::engine {

// What a JSON object may hold: properties in this order, those that are not required being left out
// or not, and then any number of others.
//
// Which property comes next is decided byte by byte of its name. Behind each property other ones
// may follow, so that it seems to need an automaton over the names for each; but those that begin
// with the same bytes go on in the same way wherever they are the same ones, and of properties in
// an order these are few: a name's bytes times the properties that share them, and not the
// properties squared.
struct ObjectRule {
  struct Value {
    std::optional<RuleId> rule;      // nothing: one of
    std::vector<std::string> texts;  // these, which are few
  };
  struct Property {
    std::string_view name;
    Value value;
    bool is_required = false;
  };
  struct Further {
    std::optional<RuleId> name;  // with its quotes; nothing: any but those of the object
    Value value;
  };

  std::vector<Property> properties;      // no name twice
  std::vector<std::string_view> absent;  // names that are none of them, and none of `further`
  std::optional<Further> further;
  bool is_empty_too = true;  // where nothing is required
};

// Draws it between two nodes. Space may stand behind `{`, `:` and `,`, and before `}`.
void AddObject(const ObjectRule& object, NodeId from, NodeId to, JsonRules* rules);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_OBJECT_RULE_H_
