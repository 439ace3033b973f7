#ifndef REFRAIN_ENGINE_GRAMMAR_DECIMAL_H_
#define REFRAIN_ENGINE_GRAMMAR_DECIMAL_H_

#include <compare>
#include <string>
#include <string_view>

namespace refrain::engine {

// A decimal number as it is written, exact. A value; any thread. Cannot fail.
class Decimal {
 public:
  Decimal() = default;  // 0
  // `number` is one of JSON. Beyond kMostExponent it is 0, as a double is.
  explicit Decimal(std::string_view number);

  static constexpr int kMostExponent = 400;

  bool is_negative() const { return negative_; }
  bool is_zero() const { return integer_.empty() && fraction_.empty(); }
  bool is_integer() const { return fraction_.empty(); }
  const std::string& integer_digits() const { return integer_; }    // without leading zeros
  const std::string& fraction_digits() const { return fraction_; }  // without trailing zeros
  Decimal Magnitude() const;
  // Equal numbers have equal texts.
  std::string ToString() const;

  friend std::strong_ordering operator<=>(const Decimal& a, const Decimal& b);
  friend bool operator==(const Decimal& a, const Decimal& b) = default;

 private:
  bool negative_ = false;
  std::string integer_;
  std::string fraction_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_DECIMAL_H_
