#include "tools/bench/grammar_workload.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <span>
#include <unordered_set>
#include <utility>

#include "engine/grammar/grammar_builder.h"
#include "engine/grammar/json_rules.h"

namespace refrain::bench {
namespace {

using engine::Grammar;
using engine::GrammarBuilder;
using engine::JsonRules;
using engine::NodeId;
using engine::RuleId;
using kvcache::TokenId;

constexpr size_t kLargeVocabulary = 128'256;
constexpr size_t kLongestPair = 16;  // bytes
constexpr size_t kFrequent = 2000;   // ids of the pieces that were merged first, so the shortest

constexpr const char* kWords[] = {"river", "a",          "house", "running",    "Quantum",
                                  "the",   "\\\"so\\\"", "été",   "line",       "42",
                                  "and",   "über",       "日本",  "\\u00e9n\\n"};

std::shared_ptr<const Grammar> Finish(GrammarBuilder builder, RuleId root) {
  auto grammar = std::move(builder).Finish(root);
  if (!grammar.ok()) {
    std::fprintf(stderr, "grammar_bench: %s\n", std::string(grammar.status().message()).c_str());
    std::exit(3);
  }
  return std::make_shared<const Grammar>(*std::move(grammar));
}

std::shared_ptr<const Grammar> AnyJson() {
  GrammarBuilder builder;
  JsonRules rules(&builder);
  const RuleId value = rules.Value();
  return Finish(std::move(builder), value);
}

class SchemaDrawing {
 public:
  // Strings of at most so many characters.
  explicit SchemaDrawing(std::optional<int> max_length = std::nullopt) : max_length_(max_length) {}

  std::shared_ptr<const Grammar> Draw() {
    const RuleId address = Object({{"street", String()}, {"zip", rules_.Integer()}});
    const RuleId record = Object({{"id", rules_.Integer()},
                                  {"name", String()},
                                  {"tags", ListOf(String())},
                                  {"scores", ListOf(rules_.Number())},
                                  {"address", address},
                                  {"active", rules_.Boolean()}});
    const RuleId records = ListOf(record);
    return Finish(std::move(builder_), records);
  }

 private:
  struct Property {
    const char* name;
    RuleId value;
  };

  RuleId String() { return max_length_ ? rules_.StringOfLength(0, max_length_) : rules_.String(); }

  // All of them, in this order.
  RuleId Object(const std::vector<Property>& properties) {
    const RuleId rule = builder_.AddRule();
    NodeId at = builder_.AddLiteral(builder_.begin(rule), "{");
    bool is_first = true;
    for (const Property& property : properties) {
      if (!is_first) at = builder_.AddLiteral(at, ",");
      is_first = false;
      at = builder_.AddCalled(at, rules_.Space());
      at = builder_.AddLiteral(at, '"' + std::string(property.name) + "\":");
      at = builder_.AddCalled(builder_.AddCalled(at, rules_.Space()), property.value);
    }
    at = builder_.AddLiteral(builder_.AddCalled(at, rules_.Space()), "}");
    builder_.AddSkip(at, builder_.end(rule));
    return rule;
  }

  RuleId ListOf(RuleId item) {
    const RuleId rule = builder_.AddRule();
    const NodeId begin = builder_.AddLiteral(builder_.begin(rule), "[");
    const NodeId before = builder_.AddCalled(begin, rules_.Space());
    const NodeId behind = builder_.AddCalled(builder_.AddCalled(before, item), rules_.Space());
    builder_.AddSkip(builder_.AddLiteral(behind, ","), begin);
    builder_.AddSkip(builder_.AddLiteral(behind, "]"), builder_.end(rule));
    return rule;
  }

  const std::optional<int> max_length_;
  GrammarBuilder builder_;
  JsonRules rules_{&builder_};
};

std::string Words(size_t count, std::mt19937* random) {
  std::string text;
  for (; count > 0; --count) {
    if (!text.empty()) text += ' ';
    text += kWords[(*random)() % std::size(kWords)];
  }
  return text;
}

std::string Number(std::mt19937* random) {
  std::string text = (*random)() % 4 == 0 ? "-" : "";
  text += std::to_string((*random)() % 10'000);
  if ((*random)() % 2 == 0) text += "." + std::to_string((*random)() % 1000);
  return text;
}

// Where a line ends in the indented form.
struct Layout {
  bool indented;
  std::string Line(size_t depth) const {
    return indented ? "\n" + std::string(2 * depth, ' ') : std::string();
  }
  std::string Next(size_t depth) const { return indented ? "," + Line(depth) : ", "; }
};

std::string Record(const Layout& layout, std::mt19937* random) {
  std::string text = "{" + layout.Line(2) + "\"id\": " + std::to_string((*random)() % 100'000);
  text += layout.Next(2) + "\"name\": \"" + Words(2, random) + "\"";
  text += layout.Next(2) + "\"tags\": [\"" + Words(1, random) + "\", \"" + Words(1, random) + "\"]";
  text += layout.Next(2) + "\"scores\": [" + Number(random) + ", " + Number(random) + "]";
  text += layout.Next(2) + "\"address\": {" + layout.Line(3) + "\"street\": \"" + Words(3, random) +
          "\"" + layout.Next(3) + "\"zip\": " + std::to_string((*random)() % 100'000) +
          layout.Line(2) + "}";
  return text + layout.Next(2) + "\"active\": true" + layout.Line(1) + "}";
}

std::string Records(const Layout& layout) {
  std::mt19937 random(1);
  std::string text = "[" + layout.Line(1);
  for (int i = 0; i < 40; ++i) {
    if (i > 0) text += layout.Next(1);
    text += Record(layout, &random);
  }
  return text + layout.Line(0) + "]";
}

std::string LongStrings() {
  std::mt19937 random(2);
  std::string text = "[";
  for (int i = 0; i < 3; ++i) text += (i > 0 ? ", \"" : "\"") + Words(500, &random) + "\"";
  return text + "]";
}

std::string DeepArrays() {
  std::mt19937 random(3);
  std::string text;
  size_t depth = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool opens = depth == 0 || (depth < 200 && random() % 5 < 3);
    if (opens) {
      text += '[';
      ++depth;
      continue;
    }
    text += Number(&random);
    if (depth > 1 && random() % 3 == 0) {
      text += ']';
      --depth;
    }
    text += ", ";
  }
  return text + "0" + std::string(depth, ']');
}

}  // namespace

std::vector<GrammarDocument> GrammarDocuments() {
  const auto json = AnyJson(), schema = SchemaDrawing().Draw();
  const std::string compact = Records({.indented = false}), indented = Records({.indented = true});
  return {{"records, by a schema", schema, compact},
          {"records, by a schema, indented", schema, indented},
          {"records, strings of at most 200", SchemaDrawing(200).Draw(), compact},
          {"records, any JSON", json, compact},
          {"records, any JSON, indented", json, indented},
          {"long strings, any JSON", json, LongStrings()},
          {"deep arrays, any JSON", json, DeepArrays()}};
}

std::vector<std::string> LargeVocabulary(std::vector<std::string> pieces) {
  std::mt19937 random(1);
  const size_t num_pieces = pieces.size();
  if (num_pieces < kFrequent) return pieces;
  std::unordered_set<std::string> known(pieces.begin(), pieces.end());
  while (pieces.size() < kLargeVocabulary) {
    std::string pair = pieces[random() % num_pieces] + pieces[random() % kFrequent];
    if (pair.size() > kLongestPair || !known.insert(pair).second) continue;
    pieces.push_back(std::move(pair));
  }
  return pieces;
}

std::vector<TokenId> LongestTokens(const engine::TokenTrie& trie, std::string_view text) {
  std::vector<TokenId> tokens;
  const auto nodes = trie.nodes();
  for (size_t begin = 0; begin < text.size();) {
    std::span<const TokenId> longest;
    size_t size = 0;
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      uint32_t child = node + 1;
      while (child < nodes[node].end && nodes[child].byte != static_cast<uint8_t>(text[i])) {
        child = nodes[child].end;
      }
      if (child >= nodes[node].end) break;
      node = child;
      if (trie.TokensAt(node).empty()) continue;
      longest = trie.TokensAt(node);
      size = i + 1 - begin;
    }
    if (longest.empty()) return {};
    tokens.push_back(longest.front());
    begin += size;
  }
  return tokens;
}

}  // namespace refrain::bench
