#include "engine/grammar/drawn_graph.h"

namespace refrain::engine {
namespace {

template <typename Id>
size_t Index(Id id) {
  return static_cast<size_t>(id);
}

// Numbers of edges, in lists by a key of each edge.
class EdgeLists {
 public:
  template <typename KeyOf>
  EdgeLists(size_t num_keys, std::span<const DrawnEdge> edges, const KeyOf& key_of)
      : begins_(num_keys + 1), numbers_(edges.size()) {
    for (const DrawnEdge& edge : edges) ++begins_[key_of(edge)];
    uint32_t end = 0;
    for (uint32_t& begin : begins_) begin = end += begin;
    for (size_t i = edges.size(); i-- > 0;) {
      numbers_[--begins_[key_of(edges[i])]] = static_cast<uint32_t>(i);
    }
  }

  std::span<const uint32_t> operator[](size_t key) const {
    return {numbers_.data() + begins_[key], begins_[key + 1] - begins_[key]};
  }
  std::vector<uint32_t> TakeBegins() && { return std::move(begins_); }

 private:
  std::vector<uint32_t> begins_;   // [num_keys + 1], of numbers_
  std::vector<uint32_t> numbers_;  // ascending in each list
};

}  // namespace

DrawnGraph::DrawnGraph(size_t num_nodes, std::span<const RuleEnds> rules,
                       std::span<const DrawnEdge> edges)
    : rules_(rules), live_(num_nodes) {
  FindLive(edges);
  std::vector<DrawnEdge> kept;
  for (const DrawnEdge& edge : edges) {
    if (!is_live(edge.to)) continue;
    if (edge.kind == DrawnEdge::Kind::kCall && !is_live(ends(edge.rule).begin)) continue;
    kept.push_back(edge);
  }
  EdgeLists leaving(num_nodes, kept, [](const DrawnEdge& edge) { return Index(edge.from); });
  edges_.reserve(kept.size());
  for (size_t node = 0; node < num_nodes; ++node) {
    for (const uint32_t number : leaving[node]) edges_.push_back(kept[number]);
  }
  begins_ = std::move(leaving).TakeBegins();
}

// Backwards from the ends. A call leads on as soon as the begin of what it calls is live, which
// may be found out before or after the node behind the call is.
void DrawnGraph::FindLive(std::span<const DrawnEdge> edges) {
  const EdgeLists arriving(live_.size(), edges,
                           [](const DrawnEdge& edge) { return Index(edge.to); });
  // Those that are no call are in a list that nobody looks at.
  const EdgeLists calling(rules_.size() + 1, edges, [this](const DrawnEdge& edge) {
    return edge.kind == DrawnEdge::Kind::kCall ? Index(edge.rule) : rules_.size();
  });
  std::vector<uint32_t> rule_that_begins(live_.size(), static_cast<uint32_t>(rules_.size()));
  std::vector<NodeId> found;
  const auto find = [&](NodeId node) {
    if (is_live(node)) return;
    live_[Index(node)] = true;
    found.push_back(node);
  };
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    rule_that_begins[Index(rules_[rule].begin)] = static_cast<uint32_t>(rule);
    find(rules_[rule].end);
  }
  while (!found.empty()) {
    const NodeId node = found.back();
    found.pop_back();
    for (const uint32_t number : arriving[Index(node)]) {
      const DrawnEdge& edge = edges[number];
      if (edge.kind != DrawnEdge::Kind::kCall || is_live(ends(edge.rule).begin)) find(edge.from);
    }
    const uint32_t begun = rule_that_begins[Index(node)];
    if (begun == rules_.size()) continue;
    for (const uint32_t number : calling[begun]) {
      if (is_live(edges[number].to)) find(edges[number].from);
    }
  }
}

}  // namespace refrain::engine
