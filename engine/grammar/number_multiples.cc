#include "engine/grammar/number_multiples.h"

#include <map>
#include <numeric>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace refrain::engine {
namespace {

constexpr size_t kMostDigits = 9;  // of an automaton's modulus, so that products stay in 64 bits
constexpr uint64_t kMostModulus = 100'000;  // whose remainders are gone through

// modulus / 10^decimals, in whole numbers.
struct Scaled {
  uint64_t modulus;
  int decimals;
};

// Without zeros in front.
std::string DigitsOf(const Decimal& number) {
  std::string digits = number.integer_digits() + number.fraction_digits();
  return digits.erase(0, digits.find_first_not_of('0'));
}

std::optional<Scaled> Scale(const Decimal& multiple_of, size_t most_digits) {
  const std::string digits = DigitsOf(multiple_of);
  if (digits.empty() || digits.size() > most_digits) return std::nullopt;
  return Scaled{std::stoull(digits), static_cast<int>(multiple_of.fraction_digits().size())};
}

uint64_t TimesTen(uint64_t remainder, int times, uint64_t modulus) {
  for (; times > 0 && remainder != 0; --times) remainder = remainder * 10 % modulus;
  return remainder;
}

// modulus / gcd(modulus, 10^decimals): which whole numbers are multiples of the scaled one.
uint64_t WholeModulus(Scaled scaled) {
  for (int i = 0; i < scaled.decimals; ++i)
    scaled.modulus /= std::gcd(scaled.modulus, uint64_t{10});
  return scaled.modulus;
}

// What the digits behind a remainder decide: for each count of them, which number they would have
// to be to make it a multiple, or that none does. From 10^count >= modulus on any remainder of its
// tenfolds can be made up for, so that they are all that counts.
std::vector<uint64_t> FateOf(uint64_t remainder, uint64_t modulus) {
  std::vector<uint64_t> fate;
  for (uint64_t power = 1;; power *= 10, remainder = remainder * 10 % modulus) {
    const uint64_t missing = (modulus - remainder) % modulus;
    fate.push_back(missing < power || power >= modulus ? missing : modulus);
    if (power >= modulus) return fate;
  }
}

}  // namespace

NumberMultiples::NumberMultiples() {
  states_.push_back({.next_in_fraction = std::array<State, 10>{}, .accepts = true});
}

absl::StatusOr<NumberMultiples> NumberMultiples::Of(const Decimal& multiple_of,
                                                    bool with_fraction) {
  const std::optional<Scaled> scaled = Scale(multiple_of, kMostDigits);
  NumberMultiples multiples;
  multiples.states_.clear();
  if (scaled && with_fraction && scaled->decimals > 0) {
    if (scaled->modulus * (static_cast<uint64_t>(scaled->decimals) + 1) <= kMostStates) {
      multiples.AddScaled(scaled->modulus, scaled->decimals);
    }
  } else if (scaled && WholeModulus(*scaled) <= kMostModulus) {
    multiples.AddClasses(WholeModulus(*scaled));
  }
  if (multiples.states_.empty() || multiples.states_.size() > kMostStates) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a multipleOf whose automaton takes over ", kMostStates, " states"));
  }
  return multiples;
}

void NumberMultiples::AddClasses(uint64_t modulus) {
  std::map<std::vector<uint64_t>, State> classes;
  std::vector<State> class_of(modulus);
  std::vector<uint64_t> firsts;  // of each class
  for (uint64_t remainder = 0; remainder < modulus; ++remainder) {
    const auto [found, is_new] =
        classes.try_emplace(FateOf(remainder, modulus), static_cast<State>(firsts.size()));
    if (is_new) firsts.push_back(remainder);
    class_of[remainder] = found->second;
  }
  for (const uint64_t first : firsts) {
    Node& node = states_.emplace_back();
    node.accepts = first == 0;
    for (uint64_t digit = 0; digit < 10; ++digit) {
      node.next[digit] = class_of[(first * 10 + digit) % modulus];
    }
  }
}

// State `decimals_read * modulus + remainder`.
void NumberMultiples::AddScaled(uint64_t modulus, int decimals) {
  for (int read = 0; read <= decimals; ++read) {
    for (uint64_t remainder = 0; remainder < modulus; ++remainder) {
      Node& node = states_.emplace_back();
      node.accepts = TimesTen(remainder, decimals - read, modulus) == 0;
      std::array<State, 10> behind_point{};
      for (uint64_t digit = 0; digit < 10; ++digit) {
        const uint64_t next = (remainder * 10 + digit) % modulus;
        node.next[digit] = static_cast<State>(next);
        behind_point[digit] =
            static_cast<State>((static_cast<uint64_t>(read) + 1) * modulus + next);
      }
      if (read < decimals) node.next_in_fraction = behind_point;
    }
  }
}

std::optional<NumberMultiples::State> NumberMultiples::NextInFraction(State state,
                                                                      int digit) const {
  const auto& next = states_[state].next_in_fraction;
  if (!next) return std::nullopt;
  return (*next)[static_cast<size_t>(digit)];
}

bool NumberMultiples::CanTell(const Decimal& multiple_of) {
  return DigitsOf(multiple_of).size() <= kMostToldDigits;
}

bool NumberMultiples::Holds(const Decimal& multiple_of, const Decimal& value) {
  // Ten times a remainder, and a digit, stay in 64 bits.
  static_assert(kMostToldDigits <= 18);
  const std::optional<Scaled> scaled = Scale(multiple_of, kMostToldDigits);
  if (!scaled || value.fraction_digits().size() > static_cast<size_t>(scaled->decimals)) {
    return false;
  }
  uint64_t remainder = 0;
  for (const std::string& digits : {value.integer_digits(), value.fraction_digits()}) {
    for (const char digit : digits) {
      remainder = (remainder * 10 + static_cast<uint64_t>(digit - '0')) % scaled->modulus;
    }
  }
  const int missing = scaled->decimals - static_cast<int>(value.fraction_digits().size());
  return TimesTen(remainder, missing, scaled->modulus) == 0;
}

}  // namespace refrain::engine
