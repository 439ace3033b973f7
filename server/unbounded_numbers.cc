#include "server/unbounded_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

namespace refrain::server {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kDigits = "0123456789";

// Behind the string that begins there.
size_t EndOfString(std::string_view json, size_t begin) {
  bool escaped = false;
  for (size_t at = begin + 1; at < json.size(); ++at) {
    if (!std::exchange(escaped, !escaped && json[at] == '\\') && json[at] == '"') return at + 1;
  }
  return json.size();
}

// Up to what can be no part of a number or of a word.
size_t EndOfToken(std::string_view json, size_t begin) {
  return std::min(json.size(), json.find_first_of(" \t\r\n\"[]{},:", begin));
}

// As JSON spells them.
bool IsNumber(std::string_view token) {
  const auto skip = [&](std::string_view characters) {
    const size_t count = std::min(token.size(), token.find_first_not_of(characters));
    token.remove_prefix(count);
    return count;
  };
  if (token.starts_with('-')) token.remove_prefix(1);
  const bool begins_with_zero = token.starts_with('0');
  const size_t digits = skip(kDigits);
  if (digits == 0 || (begins_with_zero && digits > 1)) return false;
  if (token.starts_with('.')) {
    token.remove_prefix(1);
    if (skip(kDigits) == 0) return false;
  }
  if (token.starts_with('e') || token.starts_with('E')) {
    token.remove_prefix(1);
    if (token.starts_with('-') || token.starts_with('+')) token.remove_prefix(1);
    if (skip(kDigits) == 0) return false;
  }
  return token.empty();
}

std::optional<double> UnboundedValue(std::string_view token) {
  if (token == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (token == "Infinity") return kInfinity;
  if (token == "-Infinity") return -kInfinity;
  if (!IsNumber(token)) return std::nullopt;
  const double value = std::strtod(std::string(token).c_str(), nullptr);
  return std::isinf(value) ? std::optional<double>(value) : std::nullopt;
}

}  // namespace

UnboundedNumbers TakeUnboundedNumbers(std::string_view json) {
  UnboundedNumbers taken;
  size_t index = 0;
  for (size_t at = 0; at < json.size();) {
    const size_t begin = at;
    if (json[at] == '"') {
      at = EndOfString(json, at);
    } else {
      at = std::max(at + 1, EndOfToken(json, at));
    }
    const std::string_view token = json.substr(begin, at - begin);
    const std::optional<double> value = UnboundedValue(token);
    if (value.has_value()) taken.ones.push_back({index, *value});
    if (value.has_value() || IsNumber(token)) ++index;
    taken.text.append(value.has_value() ? std::string_view("0") : token);
  }
  return taken;
}

}  // namespace refrain::server
