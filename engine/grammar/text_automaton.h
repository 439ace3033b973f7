#ifndef REFRAIN_ENGINE_GRAMMAR_TEXT_AUTOMATON_H_
#define REFRAIN_ENGINE_GRAMMAR_TEXT_AUTOMATON_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/grammar/grammar.h"

namespace refrain::engine {

// A grammar whose rules do not call themselves as one automaton over bytes, made as far as it is
// walked. Bounded: beyond kMostStates, or kMostWork in all, a walk leads nowhere, and is_overrun()
// says so. One thread.
class TextAutomaton {
 public:
  using State = uint32_t;

  static constexpr size_t kMostStates = size_t{1} << 14;
  // Rules that are begun, in all places that were looked at: some hundredths of a second, and as
  // many megabytes.
  static constexpr size_t kMostWork = size_t{1} << 19;

  explicit TextAutomaton(Grammar grammar);
  TextAutomaton(TextAutomaton&&) = default;  // states_ point into state_of_

  State start() const { return 0; }
  std::optional<State> Next(State state, uint8_t byte);
  // For each byte a number, by which bytes that lead elsewhere differ. Valid until the next walk.
  const std::array<int32_t, 256>& Row(State state);
  bool accepts(State state) const { return states_[state].accepts; }
  bool is_overrun() const { return is_overrun_; }

 private:
  // A state of each rule that was begun, the innermost one last.
  using Place = std::vector<StateId>;
  // Where a text may stand. Empty: nowhere.
  using Places = std::vector<Place>;
  struct Node {
    const Places* places;
    bool accepts = false;
    std::array<int32_t, 256> next;  // kUnknown, kNowhere or a state
  };
  static constexpr int32_t kUnknown = -1;
  static constexpr int32_t kNowhere = -2;

  int32_t Walk(const Places& places, uint8_t byte);
  // The state of these places and those that calls and ends of rules lead to.
  int32_t Intern(Places places);

  Grammar grammar_;
  std::map<Places, State> state_of_;
  std::vector<Node> states_;
  size_t work_left_ = kMostWork;
  bool is_overrun_ = false;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_TEXT_AUTOMATON_H_
