#ifndef REFRAIN_ENGINE_GRAMMAR_DRAWN_GRAPH_H_
#define REFRAIN_ENGINE_GRAMMAR_DRAWN_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/grammar/grammar.h"

namespace refrain::engine {

// A place in a rule that is being drawn.
enum class NodeId : int32_t {};

struct DrawnEdge {
  enum class Kind : uint8_t { kBytes, kCall, kSkip };
  Kind kind;
  uint8_t first = 0, last = 0;  // of kBytes: [first, last]
  NodeId from, to;
  RuleId rule{};  // of a kCall
};

struct RuleEnds {
  NodeId begin, end;
};

// The edges of drawn rules by the node that they leave, without those that lead nowhere: to a node
// that cannot reach its rule's end, or over a call that nothing satisfies. Immutable.
class DrawnGraph {
 public:
  // `rules` [number of rules] outlives it.
  DrawnGraph(size_t num_nodes, std::span<const RuleEnds> rules, std::span<const DrawnEdge> edges);

  size_t num_nodes() const { return live_.size(); }
  const RuleEnds& ends(RuleId rule) const { return rules_[static_cast<size_t>(rule)]; }
  std::span<const DrawnEdge> edges(NodeId node) const {  // in the order in which they were drawn
    const auto i = static_cast<size_t>(node);
    return {edges_.data() + begins_[i], begins_[i + 1] - begins_[i]};
  }
  // Whether the node can reach its rule's end.
  bool is_live(NodeId node) const { return live_[static_cast<size_t>(node)]; }

 private:
  void FindLive(std::span<const DrawnEdge> edges);

  std::span<const RuleEnds> rules_;
  std::vector<bool> live_;        // [num_nodes]
  std::vector<uint32_t> begins_;  // [num_nodes + 1], of edges_
  std::vector<DrawnEdge> edges_;  // of live nodes to live nodes
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_DRAWN_GRAPH_H_
