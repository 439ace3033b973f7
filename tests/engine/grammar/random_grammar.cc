#include "tests/engine/grammar/random_grammar.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "engine/grammar/grammar_builder.h"

namespace refrain::testing {
namespace {

using engine::GrammarBuilder;
using engine::NodeId;
using engine::RuleId;

void DrawEdge(const std::vector<NodeId>& nodes, const std::vector<RuleId>& rules,
              std::mt19937* random, GrammarBuilder* builder) {
  const NodeId from = nodes[(*random)() % nodes.size()], to = nodes[(*random)() % nodes.size()];
  switch ((*random)() % 10) {
    case 0:
      builder->AddSkip(from, to);
      return;
    case 1:
    case 2:
    case 3:
      builder->AddCall(from, rules[(*random)() % rules.size()], to);
      return;
    case 4:
      builder->AddSkip(builder->AddLiteral(from, "\xC3"), to);
      return;
    default: {
      const auto first = static_cast<uint8_t>('a' + (*random)() % 4);
      builder->AddBytes(from, first, std::max(first, static_cast<uint8_t>('a' + (*random)() % 4)),
                        to);
    }
  }
}

}  // namespace

engine::Grammar RandomGrammar(std::mt19937* random) {
  for (;;) {
    GrammarBuilder builder;
    std::vector<RuleId> rules(1 + (*random)() % 4);
    for (RuleId& rule : rules) rule = builder.AddRule();
    for (const RuleId rule : rules) {
      std::vector<NodeId> nodes = {builder.begin(rule), builder.end(rule)};
      for (size_t i = (*random)() % 4; i > 0; --i) nodes.push_back(builder.AddNode(rule));
      for (size_t i = 2 + (*random)() % 7; i > 0; --i) DrawEdge(nodes, rules, random, &builder);
    }
    auto grammar = std::move(builder).Finish(rules[0]);
    if (grammar.ok()) return *std::move(grammar);  // most recurse without end
  }
}

std::vector<std::string> RandomVocabulary(std::mt19937* random) {
  std::vector<std::string> pieces;
  for (const char byte : {'a', 'b', 'c', 'd', '\xC3'}) {
    if ((*random)() % 8 != 0) pieces.emplace_back(1, byte);
  }
  for (size_t i = (*random)() % 40; i > 0; --i) {
    std::string piece;
    for (size_t n = 1 + (*random)() % 5; n > 0; --n)
      piece.push_back(
          "aabbccdd\xC3"
          "e"[(*random)() % 10]);
    pieces.push_back(std::move(piece));
  }
  std::shuffle(pieces.begin(), pieces.end(), *random);
  pieces.push_back("</s>");
  return pieces;
}

}  // namespace refrain::testing
