#ifndef REFRAIN_ENGINE_GRAMMAR_GRAMMAR_BUILDER_H_
#define REFRAIN_ENGINE_GRAMMAR_GRAMMAR_BUILDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/drawn_graph.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/subset_construction.h"
#include "engine/hash_map.h"

namespace refrain::engine {

// Draws rules as automata that may guess (edges over bytes, calls, and nothing), and makes a
// Grammar of them: rule by rule the subset construction over bytes and calls, without what leads
// nowhere.
//
//   GrammarBuilder builder(limits);
//   RuleId digits = builder.AddRule();                      // [0-9]+
//   const NodeId seen = builder.AddNode(digits);
//   builder.AddBytes(builder.begin(digits), '0', '9', seen);
//   builder.AddBytes(seen, '0', '9', seen);
//   builder.AddSkip(seen, builder.end(digits));
//   absl::StatusOr<Grammar> grammar = std::move(builder).Finish(digits);
//
// What clients ask for decides its size, so it is bounded: beyond the limits nothing is added any
// more, and Finish fails. One thread. Failure: Finish, INVALID_ARGUMENT naming what is too large
// and the limit, a rule that calls itself before a byte was read, or a root that nothing can
// satisfy.
class GrammarBuilder {
 public:
  struct Limits {
    size_t nodes = size_t{1} << 18;   // with edges
    size_t states = size_t{1} << 16;  // of the finished grammar
    size_t visits = size_t{1} << 23;  // SubsetConstruction::Limits
    EncodePace* pace = nullptr;       // of Finish, CANCELLED where it stops it
  };

  GrammarBuilder() = default;
  explicit GrammarBuilder(const Limits& limits) : limits_(limits) {}

  // A rule of nothing yet but its two ends, which are nodes of it. Others may call it before it is
  // drawn.
  RuleId AddRule();
  NodeId begin(RuleId rule) const;
  NodeId end(RuleId rule) const;
  NodeId AddNode(RuleId rule);
  // What messages call it, "the rule 'x'"; without a name, "a rule".
  void SetName(RuleId rule, std::string name);
  RuleId rule_of(NodeId node) const { return rule_of_[static_cast<size_t>(node)]; }

  // Edges between nodes of one rule.
  void AddBytes(NodeId from, uint8_t first, uint8_t last, NodeId to);
  void AddCall(NodeId from, RuleId rule, NodeId to);
  void AddSkip(NodeId from, NodeId to);  // over nothing
  // A path over these bytes: where it ends, in `from`'s rule.
  NodeId AddLiteral(NodeId from, std::string_view bytes);
  // The same for one call.
  NodeId AddCalled(NodeId from, RuleId rule);
  // Any well-formed character of UTF-8 in [first, last], surrogates left out.
  void AddCharacters(NodeId from, char32_t first, char32_t last, NodeId to);

  // Grammar::twin of the state that is `node` alone: that of `twin` alone, of the same rule.
  // Whoever draws answers for it that they go on alike. A second twin of a node says nothing.
  void SetTwin(NodeId node, NodeId twin);

  bool is_full() const { return full_; }  // beyond a limit: whoever draws much may stop

  absl::StatusOr<Grammar> Finish(RuleId root) &&;

 private:
  // One rule after the other, as calls find them, into a grammar.
  class Assembly;

  bool TakeRoom();  // for a node or an edge
  void AddEdge(const DrawnEdge& edge);
  void AddCharactersOfSize(NodeId from, std::string_view first, std::string_view last, NodeId to);
  // From where `size_bytes` bytes inside of a character lead to `to`.
  NodeId InsideOfCharacter(size_t size_bytes, NodeId to);

  Limits limits_;
  bool full_ = false;
  std::vector<RuleId> rule_of_;  // [number of nodes]
  std::vector<RuleEnds> rules_;  // [number of rules]
  std::vector<DrawnEdge> edges_;
  HashMap<RuleId, std::vector<DrawnTwin>> twins_;
  HashMap<RuleId, std::string> names_;
  // Those that were drawn last, for one and the same `to`.
  NodeId inside_to_{};
  std::array<std::optional<NodeId>, 3> inside_;  // [size_bytes - 1]
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_GRAMMAR_BUILDER_H_
