#ifndef REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_DRAWING_H_
#define REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_DRAWING_H_

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/grammar_builder.h"

namespace refrain::testing {

// Some rules drawn at random over few bytes, kept as lists of edges, and what can be told of them
// by trying everything. Rule 0 is the root; nodes are numbered through all rules.
class RandomDrawing {
 public:
  static constexpr std::string_view kAlphabet = "abc";

  RandomDrawing(std::mt19937* random, bool has_twins);

  // Draws the same in a builder. Returns the root.
  engine::RuleId DrawIn(engine::GrammarBuilder* builder) const;

  // Whether `text` leads from this node to the end of its rule.
  bool Takes(int node, std::string_view text) const;
  // Whether nothing satisfies the root.
  bool IsEmpty() const { return !is_live_[static_cast<size_t>(root())]; }
  // Whether a rule that the root needs can call itself before a byte was read.
  bool HasLeftRecursion() const;

  int root() const { return Begin(0); }
  const std::vector<std::pair<int, int>>& twins() const { return twins_; }  // nodes of one rule

 private:
  enum class Kind { kBytes, kCall, kSkip };
  struct Edge {
    Kind kind;
    int from, to;
    char first = 0, last = 0;
    int rule = 0;
  };

  int num_nodes() const { return num_rules_ * nodes_per_rule_; }
  int Begin(int rule) const { return rule * nodes_per_rule_; }
  int End(int rule) const { return rule * nodes_per_rule_ + 1; }
  int RuleOf(int node) const { return node / nodes_per_rule_; }
  bool Leads(const Edge& edge) const;
  void FindLive();
  // [num_nodes]: those that are reached from `from` over live edges that `passes` lets through.
  template <typename Passes>
  std::vector<bool> Reach(int from, const Passes& passes) const;

  int num_rules_, nodes_per_rule_;
  std::vector<Edge> edges_;
  std::vector<std::pair<int, int>> twins_;
  std::vector<bool> is_live_;  // [num_nodes]
};

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_GRAMMAR_RANDOM_DRAWING_H_
