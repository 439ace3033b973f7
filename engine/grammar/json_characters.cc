#include "engine/grammar/json_characters.h"

#include <algorithm>
#include <utility>

namespace refrain::engine {
namespace {

constexpr char32_t kFirstPair = 0x10000, kLast = 0x10FFFF;
constexpr uint32_t kHigh = 0xD800, kLow = 0xDC00, kLastLow = 0xDFFF;
constexpr uint32_t kPairBits = 10;  // of each surrogate

// The characters that stand for themselves, and those that `\u` has, by ranges.
constexpr std::pair<char32_t, char32_t> kRaw[] = {{' ', '!'}, {'#', '['}, {']', kLast}};
constexpr std::pair<char32_t, char32_t> kCodes[] = {{0, kHigh - 1}, {kLastLow + 1, 0xFFFF}};
constexpr std::pair<char32_t, char32_t> kUsualCodes[] = {
    {0, ' ' - 1}, {'~' + 1, kHigh - 1}, {kLastLow + 1, 0xFFFF}};
constexpr std::pair<char32_t, uint8_t> kBackslashed[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},
                                                         {'\b', 'b'}, {'\f', 'f'},  {'\n', 'n'},
                                                         {'\r', 'r'}, {'\t', 't'}};

// Calls back with what two ranges share, if there is anything.
template <typename Range, typename Callback>
void WithCommon(const Range& range, char32_t first, char32_t last, const Callback& callback) {
  const char32_t begin = std::max(range.first, first), end = std::min(range.second, last);
  if (begin <= end) callback(begin, end);
}

}  // namespace

JsonCharacters::JsonCharacters(NodeId from, NodeId to, JsonEscapes escapes, GrammarBuilder* builder)
    : from_(from), to_(to), escapes_(escapes), builder_(*builder) {}

void JsonCharacters::Add(char32_t first, char32_t last) {
  for (const auto& range : kRaw) {
    WithCommon(range, first, last,
               [this](char32_t a, char32_t b) { builder_.AddCharacters(from_, a, b, to_); });
  }
  for (const auto& [character, escaped] : kBackslashed) {
    if (first <= character && character <= last) {
      builder_.AddBytes(Backslash(), escaped, escaped, to_);
    }
  }
  const auto add_codes = [this](char32_t a, char32_t b) { AddHex(Code(), a, b, 4, to_); };
  if (escapes_ == JsonEscapes::kAll) {
    for (const auto& range : kCodes) WithCommon(range, first, last, add_codes);
  } else {
    for (const auto& range : kUsualCodes) WithCommon(range, first, last, add_codes);
  }
  WithCommon(std::pair(kFirstPair, kLast), first, last,
             [this](char32_t a, char32_t b) { AddPairs(a, b); });
}

// Like numbers of two digits: the first high surrogate, the last one, and those between, behind
// which any low one may come.
void JsonCharacters::AddPairs(char32_t first, char32_t last) {
  constexpr uint32_t kMask = (uint32_t{1} << kPairBits) - 1;
  const auto high = [](char32_t c) { return kHigh + ((c - kFirstPair) >> kPairBits); };
  const auto low = [](char32_t c) { return kLow + ((c - kFirstPair) & kMask); };
  const auto add = [this](uint32_t high, uint32_t first_low, uint32_t last_low) {
    const NodeId behind = builder_.AddNode(builder_.rule_of(from_));
    AddHex(Code(), high, high, 4, behind);
    AddHex(builder_.AddLiteral(behind, "\\u"), first_low, last_low, 4, to_);
  };
  uint32_t begin = high(first), end = high(last);
  if (begin == end && (low(first) != kLow || low(last) != kLastLow)) {
    add(begin, low(first), low(last));
    return;
  }
  if (low(first) != kLow) add(begin++, low(first), kLastLow);
  if (low(last) != kLastLow) add(end--, kLow, low(last));
  if (begin <= end) AddHex(Code(), begin, end, 4, LowSurrogate());
}

void JsonCharacters::AddHex(NodeId from, uint32_t first, uint32_t last, int num_digits, NodeId to) {
  const int rest_bits = 4 * (num_digits - 1);
  const uint32_t rest_mask = (uint32_t{1} << rest_bits) - 1;
  uint32_t begin = first >> rest_bits, end = last >> rest_bits;
  const auto add_digits = [&](uint32_t low, uint32_t high, NodeId behind) {
    const auto add = [&](uint32_t origin, char digit, uint32_t most) {
      const uint32_t a = std::max(low, origin), b = std::min(high, most);
      if (a > b) return;
      builder_.AddBytes(from, static_cast<uint8_t>(digit + (a - origin)),
                        static_cast<uint8_t>(digit + (b - origin)), behind);
    };
    add(0, '0', 9);
    add(10, 'a', 15);
    add(10, 'A', 15);
  };
  const auto add_part = [&](uint32_t digit, uint32_t first_rest, uint32_t last_rest) {
    const NodeId behind = builder_.AddNode(builder_.rule_of(from));
    add_digits(digit, digit, behind);
    AddHex(behind, first_rest, last_rest, num_digits - 1, to);
  };
  const uint32_t first_rest = first & rest_mask, last_rest = last & rest_mask;
  if (begin == end && (first_rest != 0 || last_rest != rest_mask)) {
    add_part(begin, first_rest, last_rest);
    return;
  }
  if (first_rest != 0) add_part(begin++, first_rest, rest_mask);
  if (last_rest != rest_mask) add_part(end--, 0, last_rest);
  if (begin <= end) add_digits(begin, end, AnyHex(num_digits - 1, to));
}

NodeId JsonCharacters::AnyHex(int num_digits, NodeId to) {
  if (num_digits == 0) return to;
  auto& any_hex = to == to_ ? any_hex_ : any_hex_of_high_;
  std::optional<NodeId>& node = any_hex[static_cast<size_t>(num_digits)];
  if (!node.has_value()) {
    node = builder_.AddNode(builder_.rule_of(from_));
    const NodeId behind = AnyHex(num_digits - 1, to);
    builder_.AddBytes(*node, '0', '9', behind);
    builder_.AddBytes(*node, 'a', 'f', behind);
    builder_.AddBytes(*node, 'A', 'F', behind);
  }
  return *node;
}

NodeId JsonCharacters::Backslash() {
  if (!backslash_.has_value()) backslash_ = builder_.AddLiteral(from_, "\\");
  return *backslash_;
}

NodeId JsonCharacters::Code() {
  if (!code_.has_value()) code_ = builder_.AddLiteral(Backslash(), "u");
  return *code_;
}

NodeId JsonCharacters::LowSurrogate() {
  if (!low_surrogate_.has_value()) {
    low_surrogate_ = builder_.AddNode(builder_.rule_of(from_));
    AddHex(builder_.AddLiteral(*low_surrogate_, "\\u"), kLow, kLastLow, 4, to_);
  }
  return *low_surrogate_;
}

}  // namespace refrain::engine
