#ifndef REFRAIN_ENGINE_TEXT_JINJA_NUMBERS_H_
#define REFRAIN_ENGINE_TEXT_JINJA_NUMBERS_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace refrain::engine::jinja {

// Python's numbers where C's are others. All throw TemplateError where Python raises, and for
// integers that need more than 64 bits.

// int(text, base) and float(text) of a text without white space around it; absent where Python
// raises ValueError.
std::optional<int64_t> ParseInteger(std::string_view text, int64_t base);
std::optional<double> ParseFloat(std::string_view text);

// Of a finite number, towards zero.
int64_t TruncateFloat(double number);

// round(number, digits), halves to even. Of a float's exact binary value, not of the decimal it is
// spelled as.
int64_t RoundInteger(int64_t number, int64_t digits);
double RoundFloat(double number, int64_t digits);

double FloatPower(double a, double b);
// Rounded down, and what is left; `b` is not zero.
struct Division {
  double quotient;
  double remainder;
};
Division DivideFloats(double a, double b);

}  // namespace refrain::engine::jinja

#endif  // REFRAIN_ENGINE_TEXT_JINJA_NUMBERS_H_
