#include "engine/grammar/array_rule.h"

#include <algorithm>
#include <limits>

#include "engine/grammar/counted.h"

namespace refrain::engine {
namespace {

class ArrayDrawing {
 public:
  ArrayDrawing(const ArrayRule& array, NodeId from, NodeId to, JsonRules* rules)
      : array_(array),
        most_(array.max_items.value_or(std::numeric_limits<int>::max())),
        builder_(rules->builder()),
        space_(rules->Space()),
        close_(builder_.AddNode(builder_.rule_of(from))),
        start_(builder_.AddCalled(builder_.AddLiteral(from, "["), space_)) {
    if (array.min_items == 0) builder_.AddBytes(start_, ']', ']', to);
    builder_.AddBytes(close_, ']', ']', to);
  }

  void Draw() {
    NodeId at = start_;  // before a comma, but for the first item
    int num_items = 0;
    for (const RuleId item : array_.first) {
      if (num_items == most_ || builder_.is_full()) return;
      at = AddItem(at, item, num_items++);
      if (num_items >= array_.min_items) builder_.AddCall(at, space_, close_);
    }
    if (!array_.rest || num_items == most_) return;
    if (num_items == 0) {
      at = AddItem(at, *array_.rest, num_items++);
      if (num_items >= array_.min_items) builder_.AddCall(at, space_, close_);
    }
    AddRest(at, num_items);
  }

 private:
  NodeId AddItem(NodeId at, RuleId item, int num_before) {
    if (num_before > 0) at = builder_.AddCalled(builder_.AddLiteral(at, ","), space_);
    return builder_.AddCalled(at, item);
  }

  void AddRest(NodeId at, int num_items) {
    const RuleId rule = builder_.rule_of(at);
    const NodeId end = builder_.AddNode(rule);
    builder_.AddCall(end, space_, close_);
    const auto draw_one = [&](NodeId from, NodeId to) {
      const NodeId begin = builder_.AddCalled(builder_.AddLiteral(from, ","), space_);
      builder_.AddCall(begin, *array_.rest, to);
    };
    const auto draw_any_number = [&] {
      const NodeId any = builder_.AddNode(rule);
      draw_one(any, any);
      builder_.AddSkip(any, end);
      return any;
    };
    Counted counted{.draw_one = draw_one,
                    .min = std::max(array_.min_items - num_items, 0),
                    .draw_any_number = draw_any_number};
    if (array_.max_items) counted.max = most_ - num_items;
    DrawCounted(counted, at, end, &builder_);
  }

  const ArrayRule& array_;
  const int most_;
  GrammarBuilder& builder_;
  const RuleId space_;
  const NodeId close_;  // before `]`
  const NodeId start_;
};

}  // namespace

bool ArrayRule::is_possible() const {
  if (max_items && *max_items < min_items) return false;
  return rest || static_cast<size_t>(min_items) <= first.size();
}

void AddArray(const ArrayRule& array, NodeId from, NodeId to, JsonRules* rules) {
  ArrayDrawing(array, from, to, rules).Draw();
}

}  // namespace refrain::engine
