#include "engine/text/jinja/numbers.h"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/text/jinja/template_error.h"

namespace refrain::engine::jinja {
namespace {

[[noreturn]] void FailRange() { throw TemplateError("an integer beyond 64 bits is not supported"); }

// Without the underscores that may stand between digits. Absent when one stands elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  const auto is_digit = [&](size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits.push_back(text[i]);
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return digits;
}

}  // namespace

std::optional<int64_t> ParseInteger(std::string_view text, int64_t base) {
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits.has_value() || (base != 0 && (base < 2 || base > 36))) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(digits->c_str(), &end, static_cast<int>(base));
  if (end == digits->c_str() || end != digits->c_str() + digits->size()) return std::nullopt;
  if (errno == ERANGE) FailRange();
  return number;
}

std::optional<double> ParseFloat(std::string_view text) {
  const std::optional<std::string> digits = WithoutUnderscores(text);
  // strtod knows hexadecimal numbers and nan(...) beside.
  if (!digits.has_value() || digits->find_first_of("xX(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(digits->c_str(), &end);
  if (end == digits->c_str() || end != digits->c_str() + digits->size()) return std::nullopt;
  return number;
}

int64_t TruncateFloat(double number) {
  if (!(std::fabs(number) < 0x1p63)) FailRange();
  return static_cast<int64_t>(number);
}

int64_t RoundInteger(int64_t number, int64_t digits) {
  if (digits >= 0) return number;
  if (digits < -19) return 0;  // half of 10^20 is beyond any number
  __int128 unit = 1;
  for (int64_t i = digits; i < 0; ++i) unit *= 10;
  const __int128 rest = (number % unit + unit) % unit;
  const __int128 below = number - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (below / unit) % 2 != 0);
  const __int128 rounded = below + (up ? unit : 0);
  if (rounded > INT64_MAX || rounded < INT64_MIN) FailRange();
  return static_cast<int64_t>(rounded);
}

double RoundFloat(double number, int64_t digits) {
  if (!std::isfinite(number)) return number;
  if (digits >= 0) {
    std::array<char, 700> decimal;  // 309 places before the point, at most 300 behind it
    std::snprintf(decimal.data(), decimal.size(), "%.*f",
                  static_cast<int>(digits < 300 ? digits : 300), number);
    return std::strtod(decimal.data(), nullptr);
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  const double rest = std::fmod(std::fabs(number), unit);  // exact
  const double below = std::fabs(number) - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && std::fmod(below, 2 * unit) != 0);
  return std::copysign(below + (up ? unit : 0), number);
}

double FloatPower(double a, double b) {
  if (a == 0 && b < 0) throw TemplateError("zero to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    throw TemplateError("a negative number to a fractional power is not supported");
  }
  const double power = std::pow(a, b);
  if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
    throw TemplateError("a power beyond the range of floats");
  }
  return power;
}

Division DivideFloats(double a, double b) {
  double remainder = std::fmod(a, b);
  // From the remainder, which is exact: a / b may have been rounded up to the next integer.
  double quotient = (a - remainder) / b;
  if (remainder == 0) {
    remainder = std::copysign(0.0, b);
  } else if ((remainder < 0) != (b < 0)) {
    remainder += b;
    quotient -= 1;
  }
  return {quotient == 0 ? std::copysign(0.0, a / b) : std::nearbyint(quotient), remainder};
}

}  // namespace refrain::engine::jinja
