#ifndef REFRAIN_TESTS_ENGINE_GRAMMAR_NAIVE_ACCEPTOR_H_
#define REFRAIN_TESTS_ENGINE_GRAMMAR_NAIVE_ACCEPTOR_H_

#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"

namespace refrain::testing {

// Follows a text through a grammar in the plainest way, as an oracle for what is faster: the places
// where the text may stand, each a stack of states of its own. Takes time and memory that grow with
// the text where rules call themselves last, and without bound where a grammar is ambiguous. A
// value.
class NaiveAcceptor {
 public:
  // From the start of the root, or of any state to its rule's end. The grammar outlives it.
  explicit NaiveAcceptor(const engine::Grammar* grammar);
  NaiveAcceptor(const engine::Grammar* grammar, engine::StateId from);

  // Goes on by these bytes, or, false, stays where it is.
  bool Accept(std::string_view bytes);
  bool CanEnd() const;
  size_t num_places() const { return places_.size(); }
  // The states of the rule that it began in at which no call is waited for, ascending.
  std::vector<engine::StateId> StatesOutsideOfCalls() const;

  friend bool operator==(const NaiveAcceptor&, const NaiveAcceptor&) = default;
  friend auto operator<=>(const NaiveAcceptor& a, const NaiveAcceptor& b) {
    return a.places_ <=> b.places_;
  }

 private:
  // Where each rule that was begun goes on, the present one last.
  using Place = std::vector<engine::StateId>;
  using Places = std::set<Place>;

  // And whatever calls and ends of rules lead to from there.
  void Insert(Place place, Places* places) const;

  const engine::Grammar* grammar_;
  Places places_;
};

// Whether the text is one of the grammar's, from its start to an end.
bool Accepts(const engine::Grammar& grammar, std::string_view text);

// The size of the shortest byte string over `alphabet`, of at most so many bytes, by which two
// states are told apart: only one takes it, or may end behind it. Tries all of them; those that
// lead to the same places once.
std::optional<int> FindDifference(const engine::Grammar& grammar, engine::StateId a,
                                  engine::StateId b, std::string_view alphabet, int most_bytes);

}  // namespace refrain::testing

#endif  // REFRAIN_TESTS_ENGINE_GRAMMAR_NAIVE_ACCEPTOR_H_
