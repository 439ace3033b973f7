#include "engine/grammar/subset_construction.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

using Kind = DrawnEdge::Kind;

std::string_view BytesOf(std::span<const NodeId> nodes) {
  return {reinterpret_cast<const char*>(nodes.data()), nodes.size_bytes()};
}

}  // namespace

SubsetConstruction::SubsetConstruction(const DrawnGraph* graph, const Limits& limits)
    : graph_(*graph),
      limits_(limits),
      states_left_(limits.states + 1),
      visits_left_(limits.visits + 1),
      seen_in_(graph->num_nodes()) {}

void SubsetConstruction::Spend(size_t visits) {
  visits_left_ -= visits < visits_left_ ? visits : visits_left_;
  if (limits_.pace == nullptr) return;
  // As many as take about as long as tokenizing the text that a pace looks up for.
  constexpr size_t kVisits = 1024;
  constexpr size_t kBytes = 128;
  unpaced_ += visits;
  for (; unpaced_ >= kVisits && !is_stopped(); unpaced_ -= kVisits) limits_.pace->Did(kBytes);
}

SubsetConstruction::Nodes SubsetConstruction::Close(std::span<const NodeId> nodes) {
  ++closure_;
  Nodes met, counting;
  const auto meet = [&](NodeId node) {
    if (!graph_.is_live(node) || seen_in_[static_cast<size_t>(node)] == closure_) return;
    seen_in_[static_cast<size_t>(node)] = closure_;
    met.push_back(node);
  };
  for (const NodeId node : nodes) meet(node);
  while (!met.empty()) {
    const NodeId node = met.back();
    met.pop_back();
    bool counts = node == graph_.ends(rule_).end;
    for (const DrawnEdge& edge : graph_.edges(node)) {
      if (edge.kind == Kind::kSkip) {
        meet(edge.to);
      } else {
        counts = true;
      }
    }
    if (counts) counting.push_back(node);
    Spend(1 + graph_.edges(node).size());
  }
  std::sort(counting.begin(), counting.end());
  return counting;
}

uint32_t SubsetConstruction::Intern(std::span<const NodeId> nodes) {
  Nodes set = Close(nodes);
  const auto next = static_cast<uint32_t>(sets_.size());
  const auto [found, is_new] = state_of_.try_emplace(BytesOf(set), next);
  if (!is_new) return found->second;
  if (states_left_ > 0) --states_left_;
  RuleAutomaton::State state;
  state.twin = next;
  state.accepts = std::binary_search(set.begin(), set.end(), graph_.ends(rule_).end);
  automaton_.states.push_back(std::move(state));
  sets_.push_back(std::move(set));  // where its bytes lie stays the same
  return next;
}

void SubsetConstruction::ExpandAll() {
  for (; expanded_ < sets_.size() && !is_exhausted(); ++expanded_) {
    ExpandBytes(static_cast<uint32_t>(expanded_));
    ExpandCalls(static_cast<uint32_t>(expanded_));
  }
}

// Sweeps over the bytes: between two places where an edge begins or ends behind its last byte, the
// same edges go on.
void SubsetConstruction::ExpandBytes(uint32_t state) {
  std::vector<BytesToNode> edges;
  std::array<bool, 257> is_border{};
  for (const NodeId node : sets_[state]) {
    for (const DrawnEdge& edge : graph_.edges(node)) {
      if (edge.kind != Kind::kBytes) continue;
      edges.push_back({edge.first, edge.last, edge.to});
      is_border[edge.first] = is_border[edge.last + size_t{1}] = true;
    }
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const BytesToNode& a, const BytesToNode& b) { return a.first < b.first; });
  std::vector<RuleAutomaton::BytesTo> made;
  std::vector<BytesToNode> active;
  Nodes targets;
  size_t next = 0;
  for (size_t byte = 0; byte < 256 && !is_exhausted(); ++byte) {
    if (is_border[byte]) {
      std::erase_if(active, [byte](const BytesToNode& edge) { return edge.last < byte; });
      for (; next < edges.size() && edges[next].first == byte; ++next) {
        active.push_back(edges[next]);
      }
      targets.clear();
      Spend(active.size());
      for (const BytesToNode& edge : active) targets.push_back(edge.to);
      if (!targets.empty()) {
        const uint32_t to = Intern(targets);
        const bool continues =
            !made.empty() && made.back().to == to && made.back().last + size_t{1} == byte;
        if (!continues)
          made.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), to});
      }
    }
    if (!active.empty()) made.back().last = static_cast<uint8_t>(byte);
  }
  automaton_.states[state].bytes = std::move(made);
}

void SubsetConstruction::ExpandCalls(uint32_t state) {
  std::vector<std::pair<RuleId, NodeId>> edges;
  for (const NodeId node : sets_[state]) {
    for (const DrawnEdge& edge : graph_.edges(node)) {
      if (edge.kind == Kind::kCall) edges.emplace_back(edge.rule, edge.to);
    }
  }
  std::sort(edges.begin(), edges.end());
  std::vector<RuleAutomaton::CallTo> made;
  Nodes targets;
  for (size_t i = 0; i < edges.size(); ++i) {
    targets.push_back(edges[i].second);
    if (i + 1 < edges.size() && edges[i + 1].first == edges[i].first) continue;
    made.push_back({edges[i].first, Intern(targets)});
    targets.clear();
  }
  automaton_.states[state].calls = std::move(made);
}

// The states of twins, which may be new ones, for the states that stand for a node alone.
void SubsetConstruction::InternTwins(std::span<const DrawnTwin> twins) {
  const size_t num_reached = sets_.size();
  for (const DrawnTwin& drawn : twins) {
    if (is_exhausted()) return;
    const Nodes alone = Close({&drawn.node, 1});
    const auto found = state_of_.find(BytesOf(alone));
    if (found == state_of_.end() || found->second >= num_reached) continue;
    // A twin that leads nowhere is none of a state that leads somewhere.
    if (!graph_.is_live(drawn.twin)) continue;
    const uint32_t state = found->second;                  // `found` does not outlast another set
    if (automaton_.states[state].twin != state) continue;  // the first one drawn
    const uint32_t twin = Intern({&drawn.twin, 1});
    automaton_.states[state].twin = twin;
  }
}

absl::StatusOr<RuleAutomaton> SubsetConstruction::Build(RuleId rule,
                                                        std::span<const DrawnTwin> twins) {
  rule_ = rule;
  automaton_ = {};
  sets_.clear();
  state_of_.clear();
  state_of_.rehash(0);  // or each rule would clear the memory of the largest
  expanded_ = 0;
  Intern({&graph_.ends(rule).begin, 1});
  ExpandAll();
  InternTwins(twins);
  ExpandAll();
  if (is_stopped()) return absl::CancelledError("making the grammar was stopped");
  if (states_left_ == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammar takes more than ", limits_.states, " states"));
  }
  if (visits_left_ == 0) {
    return absl::InvalidArgumentError(absl::StrCat("grammar is too ambiguous: it takes more than ",
                                                   limits_.visits, " steps to make"));
  }
  return std::move(automaton_);
}

}  // namespace refrain::engine
