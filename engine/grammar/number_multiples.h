#ifndef REFRAIN_ENGINE_GRAMMAR_NUMBER_MULTIPLES_H_
#define REFRAIN_ENGINE_GRAMMAR_NUMBER_MULTIPLES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/decimal.h"

namespace refrain::engine {

// The multiples of a decimal number as an automaton over the digits of what is read, the point
// being told by the caller. States that no digits tell apart are one: of 1000 there are four, not a
// thousand. Immutable; any threads.
class NumberMultiples {
 public:
  using State = uint32_t;

  static constexpr uint32_t kMostStates = 1000;
  // Of a number whose multiples Holds tells, without zeros in front.
  static constexpr size_t kMostToldDigits = 18;

  NumberMultiples();  // any number

  // `multiple_of` is greater than 0. INVALID_ARGUMENT when it takes more than kMostStates.
  static absl::StatusOr<NumberMultiples> Of(const Decimal& multiple_of, bool with_fraction);
  // Whether Holds tells multiples of it; of others it is false.
  static bool CanTell(const Decimal& multiple_of);
  static bool Holds(const Decimal& multiple_of, const Decimal& value);

  State start() const { return 0; }
  State Next(State state, int digit) const { return states_[state].next[digit]; }
  // The same for a digit behind the point; nothing where none of them may follow.
  std::optional<State> NextInFraction(State state, int digit) const;
  bool accepts(State state) const { return states_[state].accepts; }

 private:
  struct Node {
    std::array<State, 10> next{};
    std::optional<std::array<State, 10>> next_in_fraction;
    bool accepts = false;
  };

  void AddClasses(uint64_t modulus);
  void AddScaled(uint64_t modulus, int decimals);

  std::vector<Node> states_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_NUMBER_MULTIPLES_H_
