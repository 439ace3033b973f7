#include "engine/grammar/counted.h"

#include <algorithm>
#include <vector>

namespace refrain::engine {

namespace {

// So many missing ones are as good as more: the last of them begins behind kTwinBytes at the
// earliest, and before it there is no end.
constexpr int kMostMissing = Grammar::kTwinBytes + 1;

}  // namespace

void DrawCounted(const Counted& counted, NodeId from, NodeId to, GrammarBuilder* builder) {
  if (counted.max.has_value() && *counted.max < counted.min) return;
  const RuleId rule = builder->rule_of(from);
  // [k]: at least k are missing. Those further than a twin tells from the upper bound have one of
  // these as their twins.
  std::vector<NodeId> missing;
  const bool needs_missing = counted.max.value_or(Grammar::kTwinBytes) >= Grammar::kTwinBytes;
  if (needs_missing) missing.push_back(counted.draw_any_number());
  for (int k = 1; needs_missing && k <= std::min(counted.min, kMostMissing); ++k) {
    missing.push_back(builder->AddNode(rule));
    counted.draw_one(missing.back(), missing[missing.size() - 2]);
  }
  // Without an upper bound, the last of them are the drawing itself.
  const int num_drawn = counted.max.value_or(std::max(counted.min - kMostMissing, 0));
  NodeId node = from;
  for (int i = 0; !builder->is_full(); ++i) {
    // A node of its own: whatever else leaves `from` would be on every round otherwise.
    const NodeId here = builder->AddNode(rule);
    if (i == 0) {
      builder->AddSkip(from, here);
    } else {
      counted.draw_one(node, here);
    }
    node = here;
    if (!counted.max.has_value() || *counted.max - i >= Grammar::kTwinBytes) {
      const int num_missing = std::clamp(counted.min - i, 0, kMostMissing);
      builder->SetTwin(node, missing[static_cast<size_t>(num_missing)]);
    }
    if (counted.max.has_value() && i >= counted.min) builder->AddSkip(node, to);
    if (i == num_drawn) break;
  }
  if (!counted.max.has_value()) builder->AddSkip(node, missing.back());
}

void DrawRepeated(const std::function<void(NodeId from, NodeId to)>& draw_one, bool is_one_edge,
                  int min, std::optional<int> max, NodeId from, NodeId to,
                  GrammarBuilder* builder) {
  constexpr int kMostCopies = 16;
  Counted counted{.draw_one = draw_one, .min = min, .max = max};
  if (max.value_or(min) > kMostCopies && !is_one_edge) {
    const RuleId rule = builder->AddRule();
    draw_one(builder->begin(rule), builder->end(rule));
    counted.draw_one = [builder, rule](NodeId begin, NodeId end) {
      builder->AddCall(begin, rule, end);
    };
  }
  counted.draw_any_number = [&counted, to, builder] {
    const NodeId any = builder->AddNode(builder->rule_of(to));
    counted.draw_one(any, any);
    builder->AddSkip(any, to);
    return any;
  };
  DrawCounted(counted, from, to, builder);
}

}  // namespace refrain::engine
