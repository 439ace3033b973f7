#ifndef REFRAIN_ENGINE_GRAMMAR_SUBSET_CONSTRUCTION_H_
#define REFRAIN_ENGINE_GRAMMAR_SUBSET_CONSTRUCTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/drawn_graph.h"
#include "engine/grammar/grammar.h"
#include "engine/hash_map.h"
#include "engine/text/encode_pace.h"
#include "engine/text/seeded_hash.h"

namespace refrain::engine {

// One rule, deterministic in its bytes and in its calls. States are numbered from 0, where it
// starts.
struct RuleAutomaton {
  struct BytesTo {
    uint8_t first, last;
    uint32_t to;
  };
  struct CallTo {
    RuleId rule;
    uint32_t to;
  };
  struct State {
    std::vector<BytesTo> bytes;  // ascending, disjoint
    std::vector<CallTo> calls;   // ascending by rule, one each
    uint32_t twin;
    bool accepts = false;
  };
  std::vector<State> states;
};

struct DrawnTwin {
  NodeId node, twin;
};

// The subset construction over what rules are drawn of, a call being a symbol of its own. A state
// is the set of the nodes at which a drawing may stand; of these only those count that have edges
// over bytes or calls or are the rule's end, so that two sets which go on in the same way are the
// same state although skips led to them in different ways.
//
// Sets may be as many as two to the power of the nodes, and large: the states of all rules and the
// visits to nodes are bounded. A value for one thread. Failure: INVALID_ARGUMENT naming the limit.
class SubsetConstruction {
 public:
  struct Limits {
    size_t states;
    size_t visits;               // of nodes, their edges and sets
    EncodePace* pace = nullptr;  // may hold it up on the way, or stop it: CANCELLED
  };

  // `graph` outlives it.
  SubsetConstruction(const DrawnGraph* graph, const Limits& limits);

  // The automaton of a rule whose begin is live. Behind the states that are reached from its start
  // stand those that are reached from twins alone.
  absl::StatusOr<RuleAutomaton> Build(RuleId rule, std::span<const DrawnTwin> twins);

 private:
  using Nodes = std::vector<NodeId>;  // ascending
  struct BytesToNode {
    uint8_t first, last;
    NodeId to;
  };

  // What counts among the nodes that skips lead to from these.
  Nodes Close(std::span<const NodeId> nodes);
  uint32_t Intern(std::span<const NodeId> nodes);
  void InternTwins(std::span<const DrawnTwin> twins);
  void ExpandAll();
  void ExpandBytes(uint32_t state);
  void ExpandCalls(uint32_t state);
  bool is_stopped() const { return limits_.pace != nullptr && limits_.pace->stopped(); }
  bool is_exhausted() const { return visits_left_ == 0 || states_left_ == 0 || is_stopped(); }
  void Spend(size_t visits);

  const DrawnGraph& graph_;
  const Limits limits_;
  size_t states_left_, visits_left_;
  size_t unpaced_ = 0;             // visits
  std::vector<uint32_t> seen_in_;  // [num_nodes]: the last closure that met the node
  uint32_t closure_ = 0;           // number of the present one

  // Of the rule that is being built.
  RuleId rule_{};
  RuleAutomaton automaton_;
  std::vector<Nodes> sets_;  // [states]
  size_t expanded_ = 0;      // states whose edges are made
  // The bytes of sets_ -> the state. Whoever writes a grammar could choose sets that collide under
  // a hash that is known.
  HashMap<std::string_view, uint32_t, SeededHash> state_of_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_SUBSET_CONSTRUCTION_H_
