#ifndef REFRAIN_ENGINE_GRAMMAR_JSON_RULES_H_
#define REFRAIN_ENGINE_GRAMMAR_JSON_RULES_H_

#include <optional>
#include <string_view>

#include "engine/grammar/grammar_builder.h"

namespace refrain::engine {

// The rules of JSON (RFC 8259) in one builder, each drawn when it is first asked for, so that they
// are one rule however often they are called.
//
// Space between tokens is what models write: nothing, one space, or one or two line ends ("\n", or
// "\r\n") and an indentation of at most kMostIndentation spaces or tabs. Unbounded space lets a
// small model write nothing else. A string holds well-formed UTF-8; of escapes all of JSON's, `\u`
// surrogates in pairs only. Numbers have at most kMostDigits digits before the point and behind it,
// for the same reason, and exponents up to kMostExponent, so that they are numbers to whoever reads
// them as a double. One thread; cannot fail (the builder does).
class JsonRules {
 public:
  static constexpr int kMostIndentation = 64;
  static constexpr int kMostDigits = 20;
  static constexpr int kMostExponent = 199;

  // It outlives them.
  explicit JsonRules(GrammarBuilder* builder) : builder_(*builder) {}

  GrammarBuilder& builder() { return builder_; }
  RuleId Space();  // may be empty
  RuleId Value();  // any of those below
  RuleId Object();
  RuleId Array();
  RuleId String();   // with its quotes
  RuleId Number();   // with fraction and exponent
  RuleId Integer();  // neither of them
  RuleId Boolean();
  RuleId Null();
  // A string of so many characters (code points; an escape is one). Some thousands at most, or the
  // grammar takes too many states. Of a maximum below the minimum nothing is drawn.
  RuleId StringOfLength(int min_characters, std::optional<int> max_characters);
  // Any one character of a string, without quotes.
  RuleId StringCharacter();
  // One character of a string, escaped where it has to be and where it may, between two nodes.
  void AddStringCharacter(NodeId from, char32_t first, char32_t last, NodeId to);

 private:
  using Draw = void (JsonRules::*)(NodeId begin, NodeId end);

  // The rule, which is drawn if it is not there yet.
  RuleId Find(std::optional<RuleId>* rule, Draw draw);
  void DrawSpace(NodeId begin, NodeId end);
  void DrawValue(NodeId begin, NodeId end);
  void DrawObject(NodeId begin, NodeId end);
  void DrawArray(NodeId begin, NodeId end);
  void DrawString(NodeId begin, NodeId end);
  void DrawNumber(NodeId begin, NodeId end);
  void DrawInteger(NodeId begin, NodeId end);
  void DrawBoolean(NodeId begin, NodeId end);
  void DrawNull(NodeId begin, NodeId end);
  void DrawStringCharacter(NodeId begin, NodeId end);

  // Where any number of characters may follow before `to`.
  NodeId AnyCharacters(NodeId to);
  // From here behind so many digits, at least one.
  NodeId AddDigits(NodeId from, int max_digits);
  // From the first byte of an integer to behind its last one.
  void AddIntegerPart(NodeId from, NodeId to);
  // What an object and an array have in common: items between commas.
  void DrawList(NodeId begin, NodeId end, char open, char close, Draw draw_item);
  void AddMember(NodeId from, NodeId to);
  void AddItem(NodeId from, NodeId to);

  GrammarBuilder& builder_;
  std::optional<RuleId> space_, value_, object_, array_, string_, number_, integer_, boolean_,
      null_, string_character_;
};

}  // namespace refrain::engine

#endif  // REFRAIN_ENGINE_GRAMMAR_JSON_RULES_H_
