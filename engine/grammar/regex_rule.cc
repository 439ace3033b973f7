#include "engine/grammar/regex_rule.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/grammar/counted.h"
#include "engine/grammar/json_characters.h"
#include "engine/grammar/regex_parser.h"

namespace refrain::engine {
namespace {

using Kind = RegexNode::Kind;

class RegexDrawing {
 public:
  RegexDrawing(RegexText text, GrammarBuilder* builder) : text_(text), builder_(*builder) {}

  void Draw(const RegexNode& root, NodeId from, NodeId to) {
    text_begin_ = from;
    text_end_ = to;
    if (text_ == RegexText::kPlain) {
      DrawPart(root, from, to);
      return;
    }
    before_ = AnyText(from);
    behind_ = AnyText(from);
    builder_.AddSkip(from, *before_);
    builder_.AddSkip(*behind_, to);
    DrawPart(root, *before_, *behind_);
  }

 private:
  // A node at which any characters of a JSON string may stand.
  NodeId AnyText(NodeId beside) {
    const NodeId any = builder_.AddNode(builder_.rule_of(beside));
    JsonCharacters(any, any, JsonEscapes::kAll, &builder_).Add(0, 0x10FFFF);
    return any;
  }

  void DrawPart(const RegexNode& node, NodeId from, NodeId to) {
    if (builder_.is_full()) return;
    switch (node.kind) {
      case Kind::kCharacters:
        return DrawCharacters(node, from, to);
      case Kind::kSequence:
        return DrawSequence(node, from, to);
      case Kind::kAlternatives:
        for (const RegexNode& part : node.parts) DrawPart(part, from, to);
        return;
      case Kind::kRepetition:
        return DrawRepetition(node, from, to);
      case Kind::kBegin:
      case Kind::kEnd:
        return;  // DrawSequence looks for them
    }
  }

  void DrawCharacters(const RegexNode& node, NodeId from, NodeId to) {
    if (text_ == RegexText::kPlain) {
      for (const auto& range : node.ranges) {
        builder_.AddCharacters(from, range.first, range.last, to);
      }
      return;
    }
    JsonCharacters characters(from, to, JsonEscapes::kUsual, &builder_);
    for (const auto& range : node.ranges) characters.Add(range.first, range.last);
  }

  // Behind `^` stands the begin of the text, whatever else might be before this part, and before
  // `$` its end.
  void DrawSequence(const RegexNode& node, NodeId from, NodeId to) {
    auto begin = node.parts.begin(), end = node.parts.end();
    for (; begin != end && begin->kind == Kind::kBegin; ++begin) from = text_begin_;
    for (; begin != end && std::prev(end)->kind == Kind::kEnd; --end) to = text_end_;
    if (begin == end) builder_.AddSkip(from, to);
    for (; begin != end; ++begin) {
      const NodeId next = std::next(begin) == end ? to : builder_.AddNode(builder_.rule_of(from));
      DrawPart(*begin, from, next);
      from = next;
    }
  }

  void DrawRepetition(const RegexNode& node, NodeId from, NodeId to) {
    const RegexNode& part = node.parts[0];
    std::optional<int> max = node.max;
    // Of what stands beside any text more than the fewest are a part of that text.
    if (from == before_ || to == behind_) max = node.min;
    if (max == 0) {
      builder_.AddSkip(from, to);
      return;
    }
    DrawRepeated([this, &part](NodeId begin, NodeId end) { DrawPart(part, begin, end); },
                 IsOneByte(part), node.min, max, from, to, &builder_);
  }

  // Whether each of its characters is one byte, and few edges have all of them.
  bool IsOneByte(const RegexNode& part) const {
    constexpr size_t kMostEdges = 4;
    if (part.kind != Kind::kCharacters || part.ranges.size() > kMostEdges) return false;
    return std::all_of(part.ranges.begin(), part.ranges.end(), [this](const auto& range) {
      if (text_ == RegexText::kPlain) return range.last < 0x80;
      const auto has = [&range](char32_t c) { return range.first <= c && c <= range.last; };
      return range.first >= ' ' && range.last <= '~' && !has('"') && !has('/') && !has('\\');
    });
  }

  const RegexText text_;
  GrammarBuilder& builder_;
  NodeId text_begin_{}, text_end_{};
  std::optional<NodeId> before_, behind_;  // any text before the pattern and behind it
};

}  // namespace

absl::Status AddRegex(std::string_view pattern, RegexText text, NodeId from, NodeId to,
                      JsonRules* rules) {
  const absl::StatusOr<RegexNode> root = ParseRegex(pattern);
  if (!root.ok()) return root.status();
  RegexDrawing(text, &rules->builder()).Draw(*root, from, to);
  return absl::OkStatus();
}

}  // namespace refrain::engine
