#include "engine/grammar/warm_masks.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace refrain::engine {
namespace {

constexpr int kManyBytes = 96;      // of 256
constexpr size_t kWalkBytes = 128;  // of a text that take no longer to tokenize

bool TakesNearlyAny(const Grammar& grammar, StateId state) {
  int taken = 0;
  for (const Grammar::ByteEdge& edge : grammar.bytes(state)) taken += edge.last - edge.first + 1;
  return taken >= kManyBytes;
}

// Where a call begins, and where its caller goes on.
struct CalledState {
  StateId start, back;
  size_t count = 0;  // calls of the same mask
};

// Those that lead to where nearly anything is taken, the most frequent masks first: a counted
// repetition has one for most of its places, and one for each that is near its end.
std::vector<CalledState> CalledStates(const Grammar& grammar) {
  using Key = std::pair<Grammar::Digest, Grammar::Digest>;
  std::map<Key, CalledState> by_mask;
  for (size_t i = 0; i < grammar.num_states(); ++i) {
    for (const Grammar::CallEdge& call : grammar.calls(static_cast<StateId>(i))) {
      const StateId start = grammar.start(call.rule);
      if (!TakesNearlyAny(grammar, start)) continue;
      const Key key(grammar.digest(grammar.twin(start)), grammar.digest(grammar.twin(call.to)));
      ++by_mask.try_emplace(key, CalledState{start, call.to}).first->second.count;
    }
  }
  std::vector<CalledState> called;
  for (const auto& [key, state] : by_mask) called.push_back(state);
  std::stable_sort(called.begin(), called.end(),
                   [](const CalledState& a, const CalledState& b) { return a.count > b.count; });
  return called;
}

}  // namespace

void WarmMasks(const Grammar& grammar, MaskStore& masks, EncodePace* pace) {
  // False: it has been stopped.
  const auto goes_on = [pace] {
    if (pace == nullptr) return true;
    pace->Did(kWalkBytes);
    return !pace->stopped();
  };
  std::set<Grammar::Digest> alone;
  for (size_t i = 0; i < grammar.num_states() && alone.size() < kMostWarmedAlone; ++i) {
    const auto state = static_cast<StateId>(i);
    if (!TakesNearlyAny(grammar, state)) continue;
    if (!alone.insert(grammar.digest(grammar.twin(state))).second) continue;
    if (!goes_on()) return;
    masks.Find(grammar, state);
  }
  int left = kMostWarmedWithCallers;
  for (const CalledState& called : CalledStates(grammar)) {
    // Of those made above it is known what is behind their ends.
    if (left == 0 || !goes_on()) break;
    if (!alone.contains(grammar.digest(grammar.twin(called.start)))) continue;
    const std::shared_ptr<const StateMask> mask = masks.Find(grammar, called.start);
    if (mask->nodes_below_ends <= masks.many_nodes()) continue;  // there is none with its caller
    masks.Find(grammar, called.start, called.back);
    --left;
  }
}

}  // namespace refrain::engine
