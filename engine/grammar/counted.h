#ifndef REFRAIN_ENGINE_GRAMMAR_COUNTED_H_
#define REFRAIN_ENGINE_GRAMMAR_COUNTED_H_

#include <functional>
#include <optional>

#include "engine/grammar/grammar_builder.h"

namespace refrain::engine {

// Something that is drawn again and again.
struct Counted {
  std::function<void(NodeId from, NodeId to)> draw_one;
  int min = 0;
  std::optional<int> max;  // none: any number; below min: nothing is drawn
  // A node from which any number of it lead to where the counted ones lead, and nothing else does.
  // Called once, or, where both bounds are near, never.
  std::function<NodeId()> draw_any_number;
};

// Draws min to max of them one after the other. What one of them takes is at least a byte, or
// nothing, which does as well wherever one is missing: further than Grammar::kTwinBytes from both
// bounds it cannot be told how many there were, and places that stand between two of them have
// twins that stand before any number, or before so many and then any number.
void DrawCounted(const Counted& counted, NodeId from, NodeId to, GrammarBuilder* builder);

// The same of a part of an expression. Where many are drawn of what takes more than an edge or few,
// it is drawn once, as a rule that is called.
void DrawRepeated(const std::function<void(NodeId from, NodeId to)>& draw_one, bool is_one_edge,
                  int min, std::optional<int> max, NodeId from, NodeId to, GrammarBuilder* builder);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_COUNTED_H_
