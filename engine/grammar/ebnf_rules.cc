#include "engine/grammar/ebnf_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/counted.h"
#include "engine/grammar/ebnf_parser.h"

namespace refrain::engine {
namespace {

using Kind = EbnfNode::Kind;

class EbnfDrawing {
 public:
  EbnfDrawing(const EbnfGrammar& grammar, GrammarBuilder* builder)
      : grammar_(grammar), builder_(*builder) {}

  RuleId Draw() {
    for (const EbnfRule& rule : grammar_.rules) {
      rules_.push_back(builder_.AddRule());
      builder_.SetName(rules_.back(),
                       absl::StrCat("the rule ", ShownRuleName(rule.name), " of line ", rule.line));
    }
    for (size_t i = 0; i < rules_.size() && !builder_.is_full(); ++i) {
      present_ = rules_[i];
      DrawPart(grammar_.rules[i].body, builder_.begin(present_), builder_.end(present_));
    }
    return rules_[grammar_.root];
  }

 private:
  void DrawPart(const EbnfNode& node, NodeId from, NodeId to) {
    if (builder_.is_full()) return;
    switch (node.kind) {
      case Kind::kLiteral:
        return DrawLiteral(node.text, from, to);
      case Kind::kCharacters:
        for (const CharacterRange& range : node.ranges) {
          builder_.AddCharacters(from, range.first, range.last, to);
        }
        return;
      case Kind::kCall:
        return DrawCall(rules_[node.rule], from, to);
      case Kind::kSequence:
        return DrawSequence(node, from, to);
      case Kind::kAlternatives:
        for (const EbnfNode& part : node.parts) DrawPart(part, from, to);
        return;
      case Kind::kRepetition:
        return DrawRepetition(node, from, to);
    }
  }

  void DrawLiteral(std::string_view text, NodeId from, NodeId to) {
    if (text.empty()) return builder_.AddSkip(from, to);
    const NodeId last = builder_.AddLiteral(from, text.substr(0, text.size() - 1));
    const auto byte = static_cast<uint8_t>(text.back());
    builder_.AddBytes(last, byte, byte, to);
  }

  // A rule that begins with itself: what follows there may follow any text of the rule, and nothing
  // else begins so (Arden's lemma). No edge leads to the begin of a rule, so that what leaves it
  // has read nothing.
  void DrawCall(RuleId rule, NodeId from, NodeId to) {
    const bool begins_with_itself = rule == present_ && from == builder_.begin(rule);
    if (!begins_with_itself) {
      builder_.AddCall(from, rule, to);
    } else if (to != builder_.end(rule)) {
      builder_.AddSkip(builder_.end(rule), to);
    }
  }

  void DrawSequence(const EbnfNode& node, NodeId from, NodeId to) {
    if (node.parts.empty()) builder_.AddSkip(from, to);
    for (auto part = node.parts.begin(); part != node.parts.end(); ++part) {
      const bool is_last = std::next(part) == node.parts.end();
      const NodeId next = is_last ? to : builder_.AddNode(builder_.rule_of(from));
      DrawPart(*part, from, next);
      from = next;
    }
  }

  void DrawRepetition(const EbnfNode& node, NodeId from, NodeId to) {
    const EbnfNode& part = node.parts[0];
    if (node.max == 0) return builder_.AddSkip(from, to);
    if (node.max == 1) {
      if (node.min == 0) builder_.AddSkip(from, to);
      return DrawPart(part, from, to);
    }
    if (!node.max.has_value() && node.min <= 1) return DrawLoop(node, from, to);
    DrawRepeated([this, &part](NodeId begin, NodeId end) { DrawPart(part, begin, end); },
                 IsOneEdge(part), node.min, node.max, from, to, &builder_);
  }

  // `*` and `+`, with one copy of the part, so that those in each other do not double it.
  void DrawLoop(const EbnfNode& node, NodeId from, NodeId to) {
    const NodeId before = builder_.AddNode(builder_.rule_of(from));
    const NodeId behind = node.min == 0 ? before : builder_.AddNode(builder_.rule_of(from));
    builder_.AddSkip(from, before);
    DrawPart(node.parts[0], before, behind);
    if (behind != before) builder_.AddSkip(behind, before);
    builder_.AddSkip(behind, to);
  }

  // Or few of them: a call, a byte, or characters of one byte each.
  static bool IsOneEdge(const EbnfNode& part) {
    constexpr size_t kMostEdges = 4;
    if (part.kind == Kind::kCall) return true;
    if (part.kind == Kind::kLiteral) return part.text.size() <= 1;
    return part.kind == Kind::kCharacters && part.ranges.size() <= kMostEdges &&
           std::all_of(part.ranges.begin(), part.ranges.end(),
                       [](const CharacterRange& range) { return range.last < 0x80; });
  }

  const EbnfGrammar& grammar_;
  GrammarBuilder& builder_;
  std::vector<RuleId> rules_;  // [grammar_.rules]
  RuleId present_{};           // the one that is drawn
};

}  // namespace

absl::StatusOr<RuleId> AddEbnf(std::string_view grammar, GrammarBuilder* builder) {
  const absl::StatusOr<EbnfGrammar> parsed = ParseEbnf(grammar);
  if (!parsed.ok()) return parsed.status();
  return EbnfDrawing(*parsed, builder).Draw();
}

}  // namespace refrain::engine
