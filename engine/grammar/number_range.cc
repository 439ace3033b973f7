#include "engine/grammar/number_range.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/json_rules.h"
#include "engine/grammar/number_multiples.h"

namespace refrain::engine {
namespace {

// Two decimals of so many significant digits are two doubles.
constexpr int kDoubleDigits = 15;

// How what is read compares with a bound, as far as it is read.
enum class Side : uint8_t { kBelow, kAt, kAbove };

// The bounds of a magnitude, for one sign.
struct MagnitudeRange {
  bool is_possible = true;
  std::optional<NumberRange::Bound> lower, upper;
};

NumberRange::Bound MagnitudeOf(const NumberRange::Bound& bound) {
  return {bound.value.Magnitude(), bound.is_exclusive};
}

MagnitudeRange NonNegative(const NumberRange& range) {
  MagnitudeRange magnitude;
  if (range.lower && !range.lower->value.is_negative()) magnitude.lower = range.lower;
  if (range.upper) {
    magnitude.is_possible = !range.upper->value.is_negative();
    magnitude.upper = MagnitudeOf(*range.upper);
  }
  return magnitude;
}

MagnitudeRange Negative(const NumberRange& range) {
  MagnitudeRange magnitude;
  magnitude.lower = NumberRange::Bound{Decimal(), /*is_exclusive=*/true};
  if (range.upper && range.upper->value.is_negative()) magnitude.lower = MagnitudeOf(*range.upper);
  if (range.lower) {
    magnitude.is_possible = range.lower->value.is_negative();
    magnitude.upper = MagnitudeOf(*range.lower);
  }
  return magnitude;
}

Side SideOfDigit(char read, char bound) {
  if (read == bound) return Side::kAt;
  return read < bound ? Side::kBelow : Side::kAbove;
}

// What is known behind one more digit of the integer part, `digits` having been read before. A
// number with more digits than the bound is above it, whatever they are.
Side BehindIntegerDigit(Side side, const NumberRange::Bound& bound, size_t digits, char digit) {
  const std::string& whole = bound.value.integer_digits();
  if (digits >= whole.size()) return Side::kAbove;
  return side == Side::kAt ? SideOfDigit(digit, whole[digits]) : side;
}

Side BehindInteger(Side side, const NumberRange::Bound& bound, size_t digits) {
  return digits < bound.value.integer_digits().size() ? Side::kBelow : side;
}

Side BehindFractionDigit(Side side, const NumberRange::Bound& bound, size_t digits, char digit) {
  if (side != Side::kAt) return side;
  const std::string& fraction = bound.value.fraction_digits();
  return SideOfDigit(digit, digits < fraction.size() ? fraction[digits] : '0');
}

Side AtEnd(Side side, const NumberRange::Bound& bound, size_t fraction_digits) {
  const bool is_longer = fraction_digits < bound.value.fraction_digits().size();
  return side == Side::kAt && is_longer ? Side::kBelow : side;
}

size_t MostFractionDigits(const NumberRange& range) {
  size_t most = JsonRules::kMostDigits;
  for (const auto& bound : {range.lower, range.upper}) {
    if (!bound || !bound->is_exclusive || bound->value.is_zero()) continue;
    const size_t whole = bound->value.integer_digits().size();
    most = std::min(most, whole < kDoubleDigits ? kDoubleDigits - whole : 0);
  }
  return most;
}

// Of a multiple a double has all digits: of more a reader would find a remainder.
size_t MostIntegerDigits(const NumberRange& range) {
  if (!range.multiple_of) return JsonRules::kMostDigits;
  const size_t fraction = range.multiple_of->fraction_digits().size();
  return fraction < kDoubleDigits ? kDoubleDigits - fraction : 1;
}

enum class Part : uint8_t { kStart, kSign, kZero, kInteger, kPoint, kFraction };

// What the next characters of a number depend on.
struct Place {
  Part part = Part::kStart;
  bool is_negative = false;
  uint8_t digits = 0;  // of the part
  Side lower = Side::kAt;
  Side upper = Side::kAt;
  NumberMultiples::State multiple = 0;

  friend auto operator<=>(const Place&, const Place&) = default;
};

// Goes through all places that a number of the range can be in, and draws each once.
class NumberDrawing {
 public:
  NumberDrawing(const NumberRange& range, NumberForm form, NumberMultiples multiples,
                GrammarBuilder* builder)
      : form_(form),
        multiples_(std::move(multiples)),
        non_negative_(NonNegative(range)),
        negative_(Negative(range)),
        most_integer_digits_(MostIntegerDigits(range)),
        most_fraction_digits_(MostFractionDigits(range)),
        builder_(*builder) {}

  // Whether there is any number.
  bool Draw(NodeId from, NodeId to) {
    nodes_.emplace(Place(), from);
    left_.push_back(Place());
    bool has_end = false;
    while (!left_.empty() && !builder_.is_full()) {
      const Place place = left_.back();
      left_.pop_back();
      const NodeId node = nodes_.at(place);
      if (CanEnd(place)) {
        builder_.AddSkip(node, to);
        has_end = true;
      }
      if (place.part == Part::kStart && negative_.is_possible) AddEdge(node, '-', '-', AtSign());
      if (const auto point = AtPoint(place)) AddEdge(node, '.', '.', *point);
      AddDigits(node, place);
    }
    return has_end || builder_.is_full();
  }

 private:
  static Place AtSign() {
    Place place;
    place.part = Part::kSign;
    place.is_negative = true;
    return place;
  }

  const MagnitudeRange& RangeOf(const Place& place) const {
    return place.is_negative ? negative_ : non_negative_;
  }

  // One edge for digits that lead to the same place.
  void AddDigits(NodeId node, const Place& place) {
    std::optional<Place> of_run;
    char first = '0';
    for (char digit = '0'; digit <= '9' + 1; ++digit) {
      const std::optional<Place> next = digit <= '9' ? AtDigit(place, digit) : std::nullopt;
      if (next == of_run) continue;
      if (of_run) AddEdge(node, first, static_cast<char>(digit - 1), *of_run);
      of_run = next;
      first = digit;
    }
  }

  void AddEdge(NodeId node, char first, char last, const Place& next) {
    auto found = nodes_.find(next);
    if (found == nodes_.end()) {
      found = nodes_.emplace(next, builder_.AddNode(builder_.rule_of(node))).first;
      left_.push_back(next);
    }
    builder_.AddBytes(node, static_cast<uint8_t>(first), static_cast<uint8_t>(last), found->second);
  }

  std::optional<Place> AtDigit(const Place& place, char digit) const {
    switch (place.part) {
      case Part::kStart:
        if (!non_negative_.is_possible) return std::nullopt;
        return AtIntegerDigit(place, digit);
      case Part::kSign:
      case Part::kInteger:
        return AtIntegerDigit(place, digit);
      case Part::kZero:
        return std::nullopt;
      case Part::kPoint:
      case Part::kFraction:
        return AtFractionDigit(place, digit);
    }
    return std::nullopt;
  }

  std::optional<Place> AtIntegerDigit(Place place, char digit) const {
    place.multiple = multiples_.Next(place.multiple, digit - '0');
    if (digit == '0' && place.digits == 0) {  // no digit at all, as bounds have it
      place.part = Part::kZero;
      return place;
    }
    if (place.digits == most_integer_digits_) return std::nullopt;
    const MagnitudeRange& range = RangeOf(place);
    place.part = Part::kInteger;
    if (range.lower) {
      place.lower = BehindIntegerDigit(place.lower, *range.lower, place.digits, digit);
    }
    if (range.upper) {
      // More digits only make it larger.
      if (place.digits >= range.upper->value.integer_digits().size()) return std::nullopt;
      place.upper = BehindIntegerDigit(place.upper, *range.upper, place.digits, digit);
    }
    ++place.digits;
    return place;
  }

  std::optional<Place> AtPoint(Place place) const {
    if (form_ == NumberForm::kInteger || most_fraction_digits_ == 0) return std::nullopt;
    if (place.part != Part::kZero && place.part != Part::kInteger) return std::nullopt;
    const MagnitudeRange& range = RangeOf(place);
    if (range.lower) place.lower = BehindInteger(place.lower, *range.lower, place.digits);
    if (range.upper) {
      place.upper = BehindInteger(place.upper, *range.upper, place.digits);
      if (place.upper == Side::kAbove) return std::nullopt;
    }
    place.part = Part::kPoint;
    place.digits = 0;
    return place;
  }

  std::optional<Place> AtFractionDigit(Place place, char digit) const {
    if (place.digits == most_fraction_digits_) return std::nullopt;
    const auto multiple = multiples_.NextInFraction(place.multiple, digit - '0');
    if (!multiple) return std::nullopt;
    place.multiple = *multiple;
    const MagnitudeRange& range = RangeOf(place);
    if (range.lower) {
      place.lower = BehindFractionDigit(place.lower, *range.lower, place.digits, digit);
    }
    if (range.upper) {
      place.upper = BehindFractionDigit(place.upper, *range.upper, place.digits, digit);
      if (place.upper == Side::kAbove) return std::nullopt;
    }
    place.part = Part::kFraction;
    ++place.digits;
    return place;
  }

  bool CanEnd(const Place& place) const {
    const bool in_fraction = place.part == Part::kFraction;
    if (place.part != Part::kZero && place.part != Part::kInteger && !in_fraction) return false;
    if (!multiples_.accepts(place.multiple)) return false;
    const auto side = [&](Side so_far, const NumberRange::Bound& bound) {
      if (!in_fraction) so_far = BehindInteger(so_far, bound, place.digits);
      return AtEnd(so_far, bound, in_fraction ? place.digits : 0);
    };
    const MagnitudeRange& range = RangeOf(place);
    if (range.lower) {
      const Side lower = side(place.lower, *range.lower);
      if (lower == Side::kBelow || (lower == Side::kAt && range.lower->is_exclusive)) return false;
    }
    if (range.upper) {
      const Side upper = side(place.upper, *range.upper);
      if (upper == Side::kAbove || (upper == Side::kAt && range.upper->is_exclusive)) return false;
    }
    return true;
  }

  const NumberForm form_;
  const NumberMultiples multiples_;
  const MagnitudeRange non_negative_, negative_;
  const size_t most_integer_digits_, most_fraction_digits_;
  GrammarBuilder& builder_;
  std::map<Place, NodeId> nodes_;
  std::vector<Place> left_;  // to be drawn
};

}  // namespace

void NumberRange::AddLower(Bound bound) {
  const bool is_stricter =
      !lower || bound.value > lower->value || (bound.value == lower->value && bound.is_exclusive);
  if (is_stricter) lower = std::move(bound);
}

void NumberRange::AddUpper(Bound bound) {
  const bool is_stricter =
      !upper || bound.value < upper->value || (bound.value == upper->value && bound.is_exclusive);
  if (is_stricter) upper = std::move(bound);
}

bool NumberRange::Holds(const Decimal& value) const {
  if (lower && (value < lower->value || (lower->is_exclusive && value == lower->value))) {
    return false;
  }
  if (upper && (value > upper->value || (upper->is_exclusive && value == upper->value))) {
    return false;
  }
  return !multiple_of || NumberMultiples::Holds(*multiple_of, value);
}

bool NumberRange::can_tell() const {
  return !multiple_of || NumberMultiples::CanTell(*multiple_of);
}

std::string NumberRange::ToString() const {
  std::string text;
  if (lower) text += (lower->is_exclusive ? ">" : ">=") + lower->value.ToString();
  if (upper) text += (upper->is_exclusive ? "<" : "<=") + upper->value.ToString();
  if (multiple_of) text += "*" + multiple_of->ToString();
  return text;
}

absl::Status AddNumber(const NumberRange& range, NumberForm form, NodeId from, NodeId to,
                       GrammarBuilder* builder) {
  NumberMultiples multiples;
  if (range.multiple_of) {
    auto made = NumberMultiples::Of(*range.multiple_of, form == NumberForm::kDecimal);
    if (!made.ok()) return made.status();
    multiples = *std::move(made);
  }
  if (!NumberDrawing(range, form, std::move(multiples), builder).Draw(from, to)) {
    return absl::NotFoundError("allows no number that can be written");
  }
  return absl::OkStatus();
}

}  // namespace refrain::engine
