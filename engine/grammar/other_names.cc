#include "engine/grammar/other_names.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;

bool NeedsEscape(char32_t c) { return c < 0x20 || c == U'"' || c == U'\\'; }

// The taken names by their characters.
class NameTrie {
 public:
  struct Node {
    std::map<char32_t, size_t> next;
    bool is_name = false;
  };

  void Add(std::string_view name) {
    std::vector<char32_t> characters;
    for (std::string_view rest = name; !rest.empty();) {
      const Utf8Unit unit = FirstUtf8Unit(rest);
      rest.remove_prefix(unit.size_bytes);
      if (NeedsEscape(unit.code_point)) return;  // no name without escapes
      characters.push_back(unit.code_point);
    }
    size_t at = 0;
    for (const char32_t c : characters) {
      const auto [next, is_new] = nodes_[at].next.try_emplace(c, nodes_.size());
      at = next->second;
      if (is_new) nodes_.emplace_back();
    }
    nodes_[at].is_name = true;
  }

  const std::vector<Node>& nodes() const { return nodes_; }  // [0] is the root

 private:
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

class NameDrawing {
 public:
  explicit NameDrawing(GrammarBuilder* builder)
      : builder_(*builder),
        rule_(builder->AddRule()),
        other_(builder->AddNode(rule_)),
        beyond_ascii_(builder->AddNode(rule_)) {
    builder_.AddCharacters(beyond_ascii_, 0x80, kLastCharacter, other_);
    AddUnescaped(other_, 0, kLastCharacter, other_);
    builder_.AddBytes(other_, '"', '"', builder_.end(rule_));
  }

  RuleId rule() const { return rule_; }

  void Draw(const NameTrie& trie) {
    std::vector<std::optional<NodeId>> drawn(trie.nodes().size());
    drawn[0] = builder_.AddLiteral(builder_.begin(rule_), "\"");
    for (size_t i = 0; i < trie.nodes().size() && !builder_.is_full(); ++i) {
      const NameTrie::Node& node = trie.nodes()[i];
      // Children stand behind their parents.
      for (const auto& [c, child] : node.next) {
        drawn[child] = builder_.AddNode(rule_);
        builder_.AddCharacters(*drawn[i], c, c, *drawn[child]);
      }
      AddOthers(*drawn[i], node);
      if (!node.is_name) builder_.AddBytes(*drawn[i], '"', '"', builder_.end(rule_));
    }
  }

 private:
  // From there over characters by which no taken name goes on.
  void AddOthers(NodeId from, const NameTrie::Node& node) {
    char32_t first = 0;
    for (const auto& [c, child] : node.next) {
      if (c > first) AddUnescaped(from, first, c - 1, other_);
      first = c + 1;
    }
    if (first <= kLastCharacter) AddUnescaped(from, first, kLastCharacter, other_);
  }

  void AddUnescaped(NodeId from, char32_t first, char32_t last, NodeId to) {
    for (char32_t c = first; c <= last && c < 0x80; ++c) {
      char32_t end = c;  // of a run
      while (end <= last && end < 0x80 && !NeedsEscape(end)) ++end;
      if (end == c) continue;
      builder_.AddBytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(end - 1), to);
      c = end - 1;
    }
    if (last < 0x80) return;
    if (first <= 0x80 && last == kLastCharacter && to == other_) {
      builder_.AddSkip(from, beyond_ascii_);  // many edges, once
    } else {
      builder_.AddCharacters(from, std::max<char32_t>(first, 0x80), last, to);
    }
  }

  GrammarBuilder& builder_;
  const RuleId rule_;
  const NodeId other_;  // where it is none of the taken names any more
  const NodeId beyond_ascii_;
};

}  // namespace

RuleId AddOtherNames(std::span<const std::string_view> taken, GrammarBuilder* builder) {
  NameTrie trie;
  for (const std::string_view name : taken) trie.Add(name);
  NameDrawing drawing(builder);
  drawing.Draw(trie);
  return drawing.rule();
}

}  // namespace refrain::engine
