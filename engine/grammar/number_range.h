#ifndef REFRAIN_ENGINE_GRAMMAR_NUMBER_RANGE_H_
#define REFRAIN_ENGINE_GRAMMAR_NUMBER_RANGE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/grammar/decimal.h"
#include "engine/grammar/grammar_builder.h"

namespace refrain::engine {

// Numbers between bounds, and multiples of one. A value; any thread.
struct NumberRange {
  struct Bound {
    Decimal value;
    bool is_exclusive = false;
  };

  std::optional<Bound> lower, upper;
  std::optional<Decimal> multiple_of;  // greater than 0

  bool is_any() const { return !lower && !upper && !multiple_of; }
  // The stricter of two bounds is kept.
  void AddLower(Bound bound);
  void AddUpper(Bound bound);
  bool Holds(const Decimal& value) const;
  // False: multiple_of has too many digits for Holds (NumberMultiples::CanTell).
  bool can_tell() const;
  // Equal ranges have equal texts.
  std::string ToString() const;
};

enum class NumberForm { kInteger, kDecimal };

// Draws the numbers of `range` between two nodes, digit by digit: as JSON has them, but
// without exponent and with at most JsonRules::kMostDigits digits in a part (kInteger: in the one
// part), and none that is -0. A reader that takes the text for a double finds it within as well:
// multiples have no more digits than a double has, and beside an exclusive bound other than 0 a
// fraction has none in which a double would not differ from the bound.
//
// Failure: NOT_FOUND where no such number is in the range, INVALID_ARGUMENT for a multiple_of that
// takes too many states (NumberMultiples). Messages go on where a place stands ("allows no ...").
absl::Status AddNumber(const NumberRange& range, NumberForm form, NodeId from, NodeId to,
                       GrammarBuilder* builder);

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_NUMBER_RANGE_H_
