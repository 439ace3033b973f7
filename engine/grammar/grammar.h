#ifndef REFRAIN_ENGINE_GRAMMAR_GRAMMAR_H_
#define REFRAIN_ENGINE_GRAMMAR_GRAMMAR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace refrain::engine {

// In front of the text of a control token where a grammar asks for the token itself, and so in the
// vocabulary's trie: no text has this byte.
inline constexpr char kControlMark = '\xff';

enum class RuleId : int32_t {};
enum class StateId : int32_t {};

// A language of byte strings that an output is held to: rules that call each other, each of them an
// automaton over bytes and calls, deterministic in its bytes (a recursive transition network; as
// pushdown automaton the form of XGrammar, arXiv:2411.15100, section 3). A state that accepts ends
// its rule, and the caller goes on behind the call; it may have edges all the same.
//
// Made by GrammarBuilder alone, which promises: every state can be reached from its rule's start or
// from a twin, and can reach an end; no rule calls itself before a byte was read, directly or
// through others; the root's language is not empty. So a matcher's closure ends, and whatever was
// accepted can be completed.
//
// Immutable: any threads. Cannot fail.
class Grammar {
 public:
  struct ByteEdge {
    uint8_t first, last;  // bytes [first, last]
    StateId to;
  };
  struct CallEdge {
    RuleId rule;
    StateId to;  // behind the call
  };
  // Equal digests: the states go on in the same way, up to the end of their rules, in whatever
  // grammar they are. 128 bits, by a secret of the process.
  using Digest = std::array<uint64_t, 2>;

  // Continuations of up to so many bytes are told by a state's twin.
  static constexpr int kTwinBytes = 64;

  RuleId root() const { return root_; }
  StateId start(RuleId rule) const { return starts_[static_cast<size_t>(rule)]; }
  // Ascending, disjoint.
  std::span<const ByteEdge> bytes(StateId state) const {
    const State& s = at(state);
    return {byte_edges_.data() + s.bytes_begin, s.bytes_end - s.bytes_begin};
  }
  // One for each rule that is called.
  std::span<const CallEdge> calls(StateId state) const {
    const State& s = at(state);
    return {call_edges_.data() + s.calls_begin, s.calls_end - s.calls_begin};
  }
  bool accepts(StateId state) const { return at(state).accepts; }
  // A state that takes the same byte strings of up to kTwinBytes bytes as this one, by its byte
  // edges and by its calls alike, and ends its rule behind the same of them; often the state
  // itself. States of a counted repetition have one twin, so that there need not be a mask for
  // each.
  StateId twin(StateId state) const { return at(state).twin; }
  const Digest& digest(StateId state) const { return at(state).digest; }

  size_t num_states() const { return states_.size(); }
  size_t num_rules() const { return starts_.size(); }
  size_t memory_bytes() const;

 private:
  friend class GrammarBuilder;
  Grammar() = default;

  struct State {
    uint32_t bytes_begin = 0, bytes_end = 0;  // of byte_edges_
    uint32_t calls_begin = 0, calls_end = 0;  // of call_edges_
    StateId twin{};
    bool accepts = false;
    Digest digest{};
  };

  const State& at(StateId state) const { return states_[static_cast<size_t>(state)]; }

  RuleId root_{};
  std::vector<StateId> starts_;  // [num_rules]
  std::vector<State> states_;
  std::vector<ByteEdge> byte_edges_;
  std::vector<CallEdge> call_edges_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_GRAMMAR_H_
