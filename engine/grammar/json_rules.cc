#include "engine/grammar/json_rules.h"

#include <algorithm>
#include <string_view>

#include "engine/grammar/counted.h"
#include "engine/grammar/json_characters.h"

namespace refrain::engine {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;

}  // namespace

RuleId JsonRules::Find(std::optional<RuleId>* rule, Draw draw) {
  if (!rule->has_value()) {
    *rule = builder_.AddRule();  // before it is drawn: it may call itself
    (this->*draw)(builder_.begin(**rule), builder_.end(**rule));
  }
  return **rule;
}

RuleId JsonRules::Space() { return Find(&space_, &JsonRules::DrawSpace); }
RuleId JsonRules::Value() { return Find(&value_, &JsonRules::DrawValue); }
RuleId JsonRules::Object() { return Find(&object_, &JsonRules::DrawObject); }
RuleId JsonRules::Array() { return Find(&array_, &JsonRules::DrawArray); }
RuleId JsonRules::String() { return Find(&string_, &JsonRules::DrawString); }
RuleId JsonRules::Number() { return Find(&number_, &JsonRules::DrawNumber); }
RuleId JsonRules::Integer() { return Find(&integer_, &JsonRules::DrawInteger); }
RuleId JsonRules::Boolean() { return Find(&boolean_, &JsonRules::DrawBoolean); }
RuleId JsonRules::Null() { return Find(&null_, &JsonRules::DrawNull); }
RuleId JsonRules::StringCharacter() {
  return Find(&string_character_, &JsonRules::DrawStringCharacter);
}

// --- values ---

void JsonRules::DrawSpace(NodeId begin, NodeId end) {
  const RuleId rule = builder_.rule_of(begin);
  builder_.AddSkip(begin, end);
  builder_.AddBytes(begin, ' ', ' ', end);
  const NodeId one_line = builder_.AddNode(rule);
  const NodeId lines = builder_.AddNode(rule);
  for (const std::string_view line_end : {"\n", "\r\n"}) {
    builder_.AddSkip(builder_.AddLiteral(begin, line_end), one_line);
    builder_.AddSkip(builder_.AddLiteral(one_line, line_end), lines);
  }
  builder_.AddSkip(one_line, lines);
  NodeId indented = lines;
  for (int width = 0; width < kMostIndentation; ++width) {
    builder_.AddSkip(indented, end);
    const NodeId next = builder_.AddNode(rule);
    builder_.AddBytes(indented, ' ', ' ', next);
    builder_.AddBytes(indented, '\t', '\t', next);
    indented = next;
  }
  builder_.AddSkip(indented, end);
}

void JsonRules::DrawValue(NodeId begin, NodeId end) {
  for (const RuleId rule : {Object(), Array(), String(), Number(), Boolean(), Null()}) {
    builder_.AddCall(begin, rule, end);
  }
}

void JsonRules::DrawObject(NodeId begin, NodeId end) {
  DrawList(begin, end, '{', '}', &JsonRules::AddMember);
}

void JsonRules::DrawArray(NodeId begin, NodeId end) {
  DrawList(begin, end, '[', ']', &JsonRules::AddItem);
}

void JsonRules::DrawList(NodeId begin, NodeId end, char open, char close, Draw draw_item) {
  const RuleId rule = builder_.rule_of(begin);
  const NodeId first = builder_.AddCalled(builder_.AddLiteral(begin, {&open, 1}), Space());
  const NodeId item = builder_.AddNode(rule);
  const NodeId behind_item = builder_.AddNode(rule);
  builder_.AddSkip(first, item);
  (this->*draw_item)(item, behind_item);
  const NodeId behind = builder_.AddCalled(behind_item, Space());
  builder_.AddCall(builder_.AddLiteral(behind, ","), Space(), item);
  builder_.AddSkip(builder_.AddLiteral(first, {&close, 1}), end);
  builder_.AddSkip(builder_.AddLiteral(behind, {&close, 1}), end);
}

void JsonRules::AddMember(NodeId from, NodeId to) {
  const NodeId behind_key = builder_.AddCalled(builder_.AddCalled(from, String()), Space());
  const NodeId value = builder_.AddCalled(builder_.AddLiteral(behind_key, ":"), Space());
  builder_.AddCall(value, Value(), to);
}

void JsonRules::AddItem(NodeId from, NodeId to) { builder_.AddCall(from, Value(), to); }

void JsonRules::DrawBoolean(NodeId begin, NodeId end) {
  builder_.AddSkip(builder_.AddLiteral(begin, "true"), end);
  builder_.AddSkip(builder_.AddLiteral(begin, "false"), end);
}

void JsonRules::DrawNull(NodeId begin, NodeId end) {
  builder_.AddSkip(builder_.AddLiteral(begin, "null"), end);
}

// --- numbers ---

NodeId JsonRules::AddDigits(NodeId from, int max_digits) {
  const RuleId rule = builder_.rule_of(from);
  const NodeId to = builder_.AddNode(rule);
  for (int i = 0; i < max_digits; ++i) {
    const NodeId next = builder_.AddNode(rule);
    builder_.AddBytes(from, '0', '9', next);
    builder_.AddSkip(next, to);
    from = next;
  }
  return to;
}

void JsonRules::AddIntegerPart(NodeId from, NodeId to) {
  const NodeId digits = builder_.AddLiteral(from, "-");
  builder_.AddSkip(from, digits);
  builder_.AddBytes(digits, '0', '0', to);
  const NodeId behind_first = builder_.AddNode(builder_.rule_of(from));
  builder_.AddBytes(digits, '1', '9', behind_first);
  builder_.AddSkip(behind_first, to);
  builder_.AddSkip(AddDigits(behind_first, kMostDigits - 1), to);
}

void JsonRules::DrawInteger(NodeId begin, NodeId end) { AddIntegerPart(begin, end); }

void JsonRules::DrawNumber(NodeId begin, NodeId end) {
  const RuleId rule = builder_.rule_of(begin);
  const NodeId behind_integer = builder_.AddNode(rule);
  AddIntegerPart(begin, behind_integer);
  const NodeId behind_fraction = AddDigits(builder_.AddLiteral(behind_integer, "."), kMostDigits);
  builder_.AddSkip(behind_integer, behind_fraction);
  const NodeId sign = builder_.AddNode(rule);
  builder_.AddBytes(behind_fraction, 'e', 'e', sign);
  builder_.AddBytes(behind_fraction, 'E', 'E', sign);
  const NodeId exponent = builder_.AddLiteral(sign, "-");
  builder_.AddBytes(sign, '+', '+', exponent);
  builder_.AddSkip(sign, exponent);
  static_assert(kMostExponent == 199);
  const NodeId tens = builder_.AddLiteral(exponent, "1");
  builder_.AddSkip(exponent, tens);
  builder_.AddSkip(AddDigits(tens, 2), end);
  builder_.AddSkip(behind_fraction, end);
}

// --- strings ---

void JsonRules::DrawStringCharacter(NodeId begin, NodeId end) {
  AddStringCharacter(begin, 0, kLastCharacter, end);
}

void JsonRules::AddStringCharacter(NodeId from, char32_t first, char32_t last, NodeId to) {
  JsonCharacters(from, to, JsonEscapes::kAll, &builder_).Add(first, last);
}

// Drawn here instead of called: then the states inside of a character know what may follow it.
NodeId JsonRules::AnyCharacters(NodeId to) {
  const NodeId any = builder_.AddNode(builder_.rule_of(to));
  AddStringCharacter(any, 0, kLastCharacter, any);
  builder_.AddSkip(any, to);
  return any;
}

void JsonRules::DrawString(NodeId begin, NodeId end) {
  const NodeId close = builder_.AddNode(builder_.rule_of(begin));
  builder_.AddBytes(close, '"', '"', end);
  builder_.AddBytes(begin, '"', '"', AnyCharacters(close));
}

RuleId JsonRules::StringOfLength(int min_characters, std::optional<int> max_characters) {
  if (min_characters <= 0 && !max_characters.has_value()) return String();
  const RuleId rule = builder_.AddRule();
  const NodeId open = builder_.AddLiteral(builder_.begin(rule), "\"");
  const NodeId close = builder_.AddNode(rule);
  builder_.AddBytes(close, '"', '"', builder_.end(rule));
  Counted counted;
  const RuleId character = StringCharacter();
  counted.draw_one = [this, character](NodeId from, NodeId to) {
    builder_.AddCall(from, character, to);
  };
  counted.min = std::max(min_characters, 0);
  counted.max = max_characters;
  counted.draw_any_number = [this, close] { return AnyCharacters(close); };
  DrawCounted(counted, open, close, &builder_);
  return rule;
}

}  // namespace refrain::engine
