#include "tests/engine/grammar/random_drawing.h"

#include <algorithm>
#include <optional>
#include <set>

namespace refrain::testing {

using engine::GrammarBuilder;
using engine::NodeId;
using engine::RuleId;

RandomDrawing::RandomDrawing(std::mt19937* random, bool has_twins) {
  const auto below = [random](int n) {
    return static_cast<int>((*random)() % static_cast<unsigned>(n));
  };
  num_rules_ = 1 + below(3);
  nodes_per_rule_ = 2 + below(4);
  for (int rule = 0; rule < num_rules_; ++rule) {
    const int num_edges = 1 + below(2 * nodes_per_rule_);
    for (int i = 0; i < num_edges; ++i) {
      Edge edge{Kind::kBytes, Begin(rule) + below(nodes_per_rule_),
                Begin(rule) + below(nodes_per_rule_)};
      const int choice = below(10);
      if (choice < 2) {
        edge.kind = Kind::kSkip;
      } else if (choice < 4) {
        edge.kind = Kind::kCall;
        edge.rule = below(num_rules_);
      } else {
        edge.first = static_cast<char>('a' + below(3));
        edge.last = static_cast<char>(std::min<int>('c', edge.first + below(3)));
      }
      edges_.push_back(edge);
    }
    for (int i = has_twins ? below(3) : 0; i > 0; --i) {
      twins_.emplace_back(Begin(rule) + below(nodes_per_rule_),
                          Begin(rule) + below(nodes_per_rule_));
    }
  }
  FindLive();
}

RuleId RandomDrawing::DrawIn(GrammarBuilder* builder) const {
  std::vector<RuleId> rules;
  std::vector<NodeId> nodes;
  for (int rule = 0; rule < num_rules_; ++rule) {
    rules.push_back(builder->AddRule());
    nodes.push_back(builder->begin(rules.back()));
    nodes.push_back(builder->end(rules.back()));
    for (int i = 2; i < nodes_per_rule_; ++i) nodes.push_back(builder->AddNode(rules.back()));
  }
  const auto node = [&nodes](int number) { return nodes[static_cast<size_t>(number)]; };
  for (const Edge& edge : edges_) {
    switch (edge.kind) {
      case Kind::kBytes:
        builder->AddBytes(node(edge.from), static_cast<uint8_t>(edge.first),
                          static_cast<uint8_t>(edge.last), node(edge.to));
        break;
      case Kind::kCall:
        builder->AddCall(node(edge.from), rules[static_cast<size_t>(edge.rule)], node(edge.to));
        break;
      case Kind::kSkip:
        builder->AddSkip(node(edge.from), node(edge.to));
    }
  }
  for (const auto& [one, twin] : twins_) builder->SetTwin(node(one), node(twin));
  return rules[0];
}

// Fills a table of (where, up to which byte) from each node and byte until nothing is added.
bool RandomDrawing::Takes(int node, std::string_view text) const {
  using Key = std::pair<int, size_t>;
  const auto size = static_cast<size_t>(num_nodes()) * (text.size() + 1);
  const auto index = [&text](const Key& key) {
    return static_cast<size_t>(key.first) * (text.size() + 1) + key.second;
  };
  std::vector<std::optional<std::set<Key>>> reached(size);  // [node, byte]; of those asked for
  std::vector<Key> asked;
  const auto ask = [&](const Key& key) -> std::set<Key>& {
    std::optional<std::set<Key>>& found = reached[index(key)];
    if (!found.has_value()) {
      found = std::set<Key>{key};
      asked.push_back(key);
    }
    return *found;
  };
  ask({node, 0});
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (size_t i = 0; i < asked.size(); ++i) {
      const std::set<Key> before = ask(asked[i]);
      std::set<Key> behind = before;
      for (const auto& [at, byte] : before) {
        for (const Edge& edge : edges_) {
          if (edge.from != at) continue;
          if (edge.kind == Kind::kSkip) {
            behind.insert({edge.to, byte});
          } else if (edge.kind == Kind::kBytes) {
            if (byte < text.size() && edge.first <= text[byte] && text[byte] <= edge.last) {
              behind.insert({edge.to, byte + 1});
            }
          } else {
            for (const auto& [called, end_byte] : ask({Begin(edge.rule), byte})) {
              if (called == End(edge.rule)) behind.insert({edge.to, end_byte});
            }
          }
        }
      }
      if (behind.size() == before.size()) continue;
      ask(asked[i]) = behind;
      has_grown = true;
    }
  }
  return ask({node, 0}).contains({End(RuleOf(node)), text.size()});
}

bool RandomDrawing::Leads(const Edge& edge) const {
  return is_live_[static_cast<size_t>(edge.to)] &&
         (edge.kind != Kind::kCall || is_live_[static_cast<size_t>(Begin(edge.rule))]);
}

void RandomDrawing::FindLive() {
  is_live_.assign(static_cast<size_t>(num_nodes()), false);
  for (int rule = 0; rule < num_rules_; ++rule) is_live_[static_cast<size_t>(End(rule))] = true;
  for (int round = 0; round < num_nodes(); ++round) {
    for (const Edge& edge : edges_) {
      if (Leads(edge)) is_live_[static_cast<size_t>(edge.from)] = true;
    }
  }
}

template <typename Passes>
std::vector<bool> RandomDrawing::Reach(int from, const Passes& passes) const {
  std::vector<bool> reached(is_live_.size());
  reached[static_cast<size_t>(from)] = true;
  for (int round = 0; round < num_nodes(); ++round) {
    for (const Edge& edge : edges_) {
      if (reached[static_cast<size_t>(edge.from)] && Leads(edge) && passes(edge)) {
        reached[static_cast<size_t>(edge.to)] = true;
      }
    }
  }
  return reached;
}

bool RandomDrawing::HasLeftRecursion() const {
  const auto rules = static_cast<size_t>(num_rules_);
  std::vector<std::vector<bool>> calls_first(rules, std::vector<bool>(rules));
  std::vector<std::vector<bool>> calls(rules, std::vector<bool>(rules));
  for (int rule = 0; rule < num_rules_; ++rule) {
    const std::vector<bool> anywhere = Reach(Begin(rule), [](const Edge&) { return true; });
    const std::vector<bool> at_first = Reach(Begin(rule), [this](const Edge& edge) {
      return edge.kind == Kind::kSkip || (edge.kind == Kind::kCall && Takes(Begin(edge.rule), ""));
    });
    for (const Edge& edge : edges_) {
      if (edge.kind != Kind::kCall || !Leads(edge)) continue;
      const auto caller = static_cast<size_t>(rule), called = static_cast<size_t>(edge.rule);
      if (anywhere[static_cast<size_t>(edge.from)]) calls[caller][called] = true;
      if (at_first[static_cast<size_t>(edge.from)]) calls_first[caller][called] = true;
    }
  }
  for (auto* relation : {&calls, &calls_first}) {
    for (size_t by = 0; by < rules; ++by) {
      for (size_t a = 0; a < rules; ++a) {
        for (size_t b = 0; b < rules; ++b) {
          if ((*relation)[a][by] && (*relation)[by][b]) (*relation)[a][b] = true;
        }
      }
    }
  }
  for (size_t rule = 0; rule < rules; ++rule) {
    if ((rule == 0 || calls[0][rule]) && calls_first[rule][rule]) return true;
  }
  return false;
}

}  // namespace refrain::testing
