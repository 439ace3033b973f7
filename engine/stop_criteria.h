#ifndef REFRAIN_ENGINE_STOP_CRITERIA_H_
#define REFRAIN_ENGINE_STOP_CRITERIA_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "engine/shared_list.h"
#include "engine/token_stream.h"

namespace refrain::engine {

// A set of byte strings, found in a stream of bytes by the Aho-Corasick automaton: amortised
// constant time per byte, whatever the length of the strings, but for the children that a node
// lists (so many as strings go on differently from a prefix: of the 16 strings of a request 16 at
// most, 256 in general); memory proportional to their total length. Immutable, shared by the
// choices of a request.
class StopStrings {
 public:
  // A cursor: what of the strings the bytes so far may be the beginning of.
  using State = int32_t;
  static constexpr State kStart = 0;

  explicit StopStrings(std::span<const std::string> strings);  // empty ones are ignored

  bool empty() const { return nodes_.size() == 1; }
  State Next(State state, char byte) const;
  // Index of the longest string that ends exactly here.
  std::optional<size_t> Match(State state) const;
  // How many of the last bytes may yet become part of a match.
  int32_t HeldBytes(State state) const { return nodes_[static_cast<size_t>(state)].held_bytes; }

 private:
  struct Node {
    State first_child = -1;
    State next_sibling = -1;
    State fail = 0;
    int32_t depth = 0;
    int32_t held_bytes = 0;
    int32_t match = -1;
    char byte = 0;
  };

  State ChildOrNone(State state, char byte) const;
  void LinkFailures();

  std::vector<Node> nodes_;
};

// When the choices of one request end, from its StopParams. Immutable, shared by them. Copies share
// what may be large: the rules of a call's other prompts are copies with their own numbers.
struct StopRules {
  StopRules(const StopParams& params, int32_t max_tokens,
            std::span<const TokenId> end_of_generation);

  int32_t min_tokens;
  int32_t max_tokens;  // the request's, cut to what the context leaves
  bool include_stop_in_output;
  SharedList<TokenId> end_tokens;   // sorted; end of generation, stop_token_ids
  SharedList<TokenId> late_tokens;  // sorted; not chosen before min_tokens tokens were: these, and
                                    // the end of generation where ignore_eos makes it a token
                                    // like others, so that it ends no text too early
  SharedList<std::string> strings;
  std::shared_ptr<const StopStrings> automaton;  // of `strings`; never null
};

// Follows one choice's tokens: says when it ends, and holds back those whose bytes may become part
// of a stop string. What it releases stays true; on a match the tokens before the string are
// released, the one in which it begins is cut (TokenEvent::shown_bytes), of the others only the ids
// are told (ChoiceEnd::hidden_tokens).
//
// A stop string counts when it ends behind token number min_tokens, as an end token does; the
// earliest end wins, of several the longest string. Engine thread; cannot fail.
class StopCriteria {
 public:
  explicit StopCriteria(std::shared_ptr<const StopRules> rules) : rules_(std::move(rules)) {}

  // Takes the next token and the bytes of text that it is shown as, none for a control token that
  // is hidden; adds what may now be shown to `released`. The choice has ended when an end is
  // returned (`ChoiceEnd::choice` is the event's).
  std::optional<ChoiceEnd> Accept(TokenEvent event, std::string_view bytes,
                                  std::vector<TokenEvent>* released);
  // The choice ends for another reason: gives up what is held.
  void ReleaseAll(std::vector<TokenEvent>* released);

 private:
  struct Held {
    TokenEvent event;
    int64_t begin_byte, end_byte;  // of the choice's output
  };

  // Shows the output up to `end_byte`; the tokens behind it are `hidden`.
  void ReleaseCut(int64_t end_byte, std::vector<TokenEvent>* released,
                  std::vector<TokenId>* hidden);
  void ReleaseUpTo(int64_t end_byte, std::vector<TokenEvent>* released);
  bool IsEndToken(TokenId token) const;

  std::shared_ptr<const StopRules> rules_;
  StopStrings::State state_ = StopStrings::kStart;
  int32_t accepted_tokens_ = 0;
  int64_t output_bytes_ = 0;
  std::list<Held> held_;  // takes no memory while it is empty
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_STOP_CRITERIA_H_
