#include "engine/grammar/left_recursion.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace refrain::engine {
namespace {

template <typename Id>
size_t Index(Id id) {
  return static_cast<size_t>(id);
}

// What each rule can come to over nothing but calls of rules that may be empty. Found from the
// starts; a state whose call cannot be empty yet waits in a list of the rule that it calls.
class EmptyPaths {
 public:
  explicit EmptyPaths(const Grammar& grammar)
      : grammar_(grammar),
        reached_by_(grammar.num_states(), kNobody),
        is_empty_(grammar.num_rules()),
        waiting_(grammar.num_rules()),
        called_first_(grammar.num_rules()) {
    for (size_t rule = 0; rule < grammar.num_rules(); ++rule) {
      Reach(static_cast<uint32_t>(rule), grammar.start(static_cast<RuleId>(rule)));
    }
    while (!found_.empty()) {
      const StateId state = found_.back();
      found_.pop_back();
      Leave(state);
    }
  }

  // [num_rules]: the rules that a rule calls before a byte was read.
  const std::vector<std::vector<RuleId>>& called_first() const { return called_first_; }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;

  // States belong to one rule each.
  void Reach(uint32_t rule, StateId state) {
    if (reached_by_[Index(state)] != kNobody) return;
    reached_by_[Index(state)] = rule;
    found_.push_back(state);
  }

  void Leave(StateId state) {
    const uint32_t rule = reached_by_[Index(state)];
    for (const Grammar::CallEdge& call : grammar_.calls(state)) {
      called_first_[rule].push_back(call.rule);
      if (is_empty_[Index(call.rule)]) {
        Reach(rule, call.to);
      } else {
        waiting_[Index(call.rule)].push_back({rule, call.to});
      }
    }
    if (!grammar_.accepts(state) || is_empty_[rule]) return;
    is_empty_[rule] = true;
    for (const Waiting& caller : waiting_[rule]) Reach(caller.rule, caller.to);
  }

  struct Waiting {
    uint32_t rule;
    StateId to;
  };

  const Grammar& grammar_;
  std::vector<uint32_t> reached_by_;  // [num_states]
  std::vector<bool> is_empty_;        // [num_rules]
  std::vector<std::vector<Waiting>> waiting_;
  std::vector<std::vector<RuleId>> called_first_;
  std::vector<StateId> found_;
};

}  // namespace

// Takes away rules that nobody calls first any more. What is left is called by what is left, so
// that whoever goes from callee to caller comes to a circle.
std::vector<RuleId> FindLeftRecursion(const Grammar& grammar) {
  const EmptyPaths paths(grammar);
  const std::vector<std::vector<RuleId>>& called_first = paths.called_first();
  std::vector<size_t> num_callers(called_first.size());
  for (const std::vector<RuleId>& called : called_first) {
    for (const RuleId rule : called) ++num_callers[Index(rule)];
  }
  std::vector<size_t> uncalled;
  for (size_t rule = 0; rule < num_callers.size(); ++rule) {
    if (num_callers[rule] == 0) uncalled.push_back(rule);
  }
  for (size_t i = 0; i < uncalled.size(); ++i) {
    for (const RuleId rule : called_first[uncalled[i]]) {
      if (--num_callers[Index(rule)] == 0) uncalled.push_back(Index(rule));
    }
  }
  std::vector<size_t> caller(called_first.size());
  size_t rule = called_first.size();
  for (size_t left = 0; left < called_first.size(); ++left) {
    if (num_callers[left] == 0) continue;
    rule = left;
    for (const RuleId called : called_first[left]) caller[Index(called)] = left;
  }
  std::vector<RuleId> circle;
  if (rule == called_first.size()) return circle;
  for (std::vector<bool> seen(called_first.size()); !seen[rule]; rule = caller[rule]) {
    seen[rule] = true;
  }
  for (size_t first = rule; circle.empty() || rule != first; rule = caller[rule]) {
    circle.push_back(static_cast<RuleId>(rule));
  }
  return circle;
}

}  // namespace refrain::engine
