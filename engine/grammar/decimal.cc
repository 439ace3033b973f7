#include "engine/grammar/decimal.h"

#include <algorithm>
#include <utility>

namespace refrain::engine {
namespace {

// Clamped: beyond the limit all are the same.
int ReadExponent(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int exponent = 0;
  for (const char digit : text) {
    exponent = std::min(10 * exponent + (digit - '0'), 10 * Decimal::kMostExponent);
  }
  return negative ? -exponent : exponent;
}

std::strong_ordering CompareMagnitudes(const Decimal& a, const Decimal& b) {
  const std::string& whole = a.integer_digits();
  if (const auto order = whole.size() <=> b.integer_digits().size(); std::is_neq(order))
    return order;
  if (const auto order = whole.compare(b.integer_digits()); order != 0) return order <=> 0;
  return a.fraction_digits().compare(b.fraction_digits()) <=> 0;
}

}  // namespace

Decimal::Decimal(std::string_view number) {
  negative_ = number.starts_with('-');
  if (negative_) number.remove_prefix(1);
  int exponent = 0;
  if (const size_t e = number.find_first_of("eE"); e != std::string_view::npos) {
    exponent = ReadExponent(number.substr(e + 1));
    number = number.substr(0, e);
  }
  const size_t point = std::min(number.find('.'), number.size());
  integer_ = number.substr(0, point);
  if (point < number.size()) fraction_ = number.substr(point + 1);
  if (exponent > kMostExponent || exponent < -kMostExponent) {
    integer_.clear();
    fraction_.clear();
  }
  if (exponent > 0) {
    const size_t moved = static_cast<size_t>(exponent);
    fraction_.resize(std::max(fraction_.size(), moved), '0');
    integer_ += fraction_.substr(0, moved);
    fraction_.erase(0, moved);
  } else if (exponent < 0) {
    const size_t moved = static_cast<size_t>(-exponent);
    if (integer_.size() < moved) integer_.insert(0, moved - integer_.size(), '0');
    fraction_.insert(0, integer_.substr(integer_.size() - moved));
    integer_.resize(integer_.size() - moved);
  }
  integer_.erase(0, std::min(integer_.find_first_not_of('0'), integer_.size()));
  fraction_.resize(fraction_.find_last_not_of('0') + 1);
  if (is_zero()) negative_ = false;
}

Decimal Decimal::Magnitude() const {
  Decimal magnitude = *this;
  magnitude.negative_ = false;
  return magnitude;
}

std::string Decimal::ToString() const {
  std::string text = negative_ ? "-" : "";
  text += integer_.empty() ? "0" : integer_;
  if (!fraction_.empty()) text += "." + fraction_;
  return text;
}

std::strong_ordering operator<=>(const Decimal& a, const Decimal& b) {
  if (a.negative_ != b.negative_) {
    return a.negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  return a.negative_ ? CompareMagnitudes(b, a) : CompareMagnitudes(a, b);
}

}  // namespace refrain::engine
