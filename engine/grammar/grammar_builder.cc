#include "engine/grammar/grammar_builder.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/left_recursion.h"
#include "engine/grammar/state_digests.h"
#include "engine/text/utf8.h"

namespace refrain::engine {
namespace {

constexpr uint8_t kContinuationFirst = 0x80, kContinuationLast = 0xBF;

// The characters of UTF-8 by their size; what lies between is surrogates.
struct CharacterRange {
  char32_t first, last;
};
constexpr CharacterRange kCharactersBySize[] = {
    {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};

std::string Utf8Of(char32_t code_point) {
  std::string bytes;
  AppendUtf8(code_point, &bytes);
  return bytes;
}

bool IsAll(std::string_view bytes, uint8_t byte) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [byte](char c) { return static_cast<uint8_t>(c) == byte; });
}

}  // namespace

// --- drawing ---

bool GrammarBuilder::TakeRoom() {
  full_ = full_ || rule_of_.size() + edges_.size() >= limits_.nodes;
  return !full_;
}

RuleId GrammarBuilder::AddRule() {
  // The first one is always there, for whoever needs some rule.
  if (!TakeRoom() && !rules_.empty()) return static_cast<RuleId>(rules_.size() - 1);
  const auto rule = static_cast<RuleId>(rules_.size());
  const auto begin = static_cast<NodeId>(rule_of_.size());
  const auto end = static_cast<NodeId>(rule_of_.size() + 1);
  rules_.push_back({begin, end});
  rule_of_.insert(rule_of_.end(), 2, rule);
  return rule;
}

NodeId GrammarBuilder::begin(RuleId rule) const { return rules_[static_cast<size_t>(rule)].begin; }

NodeId GrammarBuilder::end(RuleId rule) const { return rules_[static_cast<size_t>(rule)].end; }

void GrammarBuilder::SetName(RuleId rule, std::string name) {
  if (TakeRoom()) names_.insert_or_assign(rule, std::move(name));
}

NodeId GrammarBuilder::AddNode(RuleId rule) {
  if (!TakeRoom()) return end(rule);
  rule_of_.push_back(rule);
  return static_cast<NodeId>(rule_of_.size() - 1);
}

void GrammarBuilder::AddEdge(const DrawnEdge& edge) {
  if (!TakeRoom()) return;
  assert(rule_of(edge.from) == rule_of(edge.to));
  edges_.push_back(edge);
}

void GrammarBuilder::AddBytes(NodeId from, uint8_t first, uint8_t last, NodeId to) {
  assert(first <= last);
  AddEdge({DrawnEdge::Kind::kBytes, first, last, from, to});
}

void GrammarBuilder::AddCall(NodeId from, RuleId rule, NodeId to) {
  AddEdge({DrawnEdge::Kind::kCall, 0, 0, from, to, rule});
}

void GrammarBuilder::AddSkip(NodeId from, NodeId to) {
  AddEdge({DrawnEdge::Kind::kSkip, 0, 0, from, to});
}

NodeId GrammarBuilder::AddLiteral(NodeId from, std::string_view bytes) {
  for (const char c : bytes) {
    if (full_) break;
    const NodeId to = AddNode(rule_of(from));
    AddBytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    from = to;
  }
  return from;
}

NodeId GrammarBuilder::AddCalled(NodeId from, RuleId rule) {
  const NodeId to = AddNode(rule_of(from));
  AddCall(from, rule, to);
  return to;
}

void GrammarBuilder::AddCharacters(NodeId from, char32_t first, char32_t last, NodeId to) {
  for (const CharacterRange& range : kCharactersBySize) {
    const char32_t begin = std::max(first, range.first), end = std::min(last, range.last);
    if (begin <= end) AddCharactersOfSize(from, Utf8Of(begin), Utf8Of(end), to);
  }
}

// Well-formed byte strings of one size between two: those that begin like the first, those that
// begin like the last, and between them a range of bytes behind which anything continues.
void GrammarBuilder::AddCharactersOfSize(NodeId from, std::string_view first, std::string_view last,
                                         NodeId to) {
  auto low = static_cast<uint8_t>(first[0]), high = static_cast<uint8_t>(last[0]);
  const std::string_view first_rest = first.substr(1), last_rest = last.substr(1);
  const bool has_all_low = IsAll(first_rest, kContinuationFirst);
  const bool has_all_high = IsAll(last_rest, kContinuationLast);
  if (low == high && !(has_all_low && has_all_high)) {
    const NodeId inside = AddNode(rule_of(from));
    AddBytes(from, low, low, inside);
    AddCharactersOfSize(inside, first_rest, last_rest, to);
    return;
  }
  const std::string firsts(first_rest.size(), static_cast<char>(kContinuationFirst));
  const std::string lasts(first_rest.size(), static_cast<char>(kContinuationLast));
  if (!has_all_low) {
    const NodeId inside = AddNode(rule_of(from));
    AddBytes(from, low, low, inside);
    AddCharactersOfSize(inside, first_rest, lasts, to);
    ++low;
  }
  if (!has_all_high) {
    const NodeId inside = AddNode(rule_of(from));
    AddBytes(from, high, high, inside);
    AddCharactersOfSize(inside, firsts, last_rest, to);
    --high;
  }
  if (low <= high) AddBytes(from, low, high, InsideOfCharacter(first_rest.size(), to));
}

NodeId GrammarBuilder::InsideOfCharacter(size_t size_bytes, NodeId to) {
  if (size_bytes == 0) return to;
  if (inside_to_ != to) {
    inside_to_ = to;
    inside_ = {};
  }
  std::optional<NodeId>& inside = inside_[size_bytes - 1];
  if (!inside.has_value()) {
    inside = AddNode(rule_of(to));
    AddBytes(*inside, kContinuationFirst, kContinuationLast, InsideOfCharacter(size_bytes - 1, to));
  }
  return *inside;
}

void GrammarBuilder::SetTwin(NodeId node, NodeId twin) {
  if (!TakeRoom()) return;
  assert(rule_of(node) == rule_of(twin));
  twins_[rule_of(node)].push_back({node, twin});
}

// --- finishing ---

class GrammarBuilder::Assembly {
 public:
  Assembly(const GrammarBuilder& drawn, const DrawnGraph& graph)
      : drawn_(drawn),
        construction_(&graph, {drawn.limits_.states, drawn.limits_.visits, drawn.limits_.pace}),
        numbers_(drawn.rules_.size()) {}

  // Once: afterwards it has no grammar any more.
  absl::StatusOr<Grammar> Assemble(RuleId root) {
    grammar_.root_ = NumberOf(root);
    for (size_t rule = 0; rule < found_.size(); ++rule) {
      const auto twins = drawn_.twins_.find(found_[rule]);
      absl::StatusOr<RuleAutomaton> automaton = construction_.Build(
          found_[rule], twins != drawn_.twins_.end() ? std::span<const DrawnTwin>(twins->second)
                                                     : std::span<const DrawnTwin>());
      if (!automaton.ok()) return automaton.status();
      Add(*automaton);
    }
    return std::move(grammar_);
  }

  // "a rule", or the name of the first of them that has one. Of rules of the grammar.
  std::string NameOf(const std::vector<RuleId>& rules) const {
    std::vector<RuleId> named;
    for (const RuleId rule : rules) {
      const RuleId drawn = found_[static_cast<size_t>(rule)];
      if (drawn_.names_.contains(drawn)) named.push_back(drawn);
    }
    if (named.empty()) return "a rule";
    return drawn_.names_.at(*std::min_element(named.begin(), named.end()));
  }

 private:
  // Of the rule in the grammar: they are numbered as they are found.
  RuleId NumberOf(RuleId rule) {
    std::optional<RuleId>& number = numbers_[static_cast<size_t>(rule)];
    if (!number.has_value()) {
      number = static_cast<RuleId>(found_.size());
      found_.push_back(rule);
    }
    return *number;
  }

  void Add(const RuleAutomaton& automaton) {
    const size_t offset = grammar_.states_.size();
    const auto at = [offset](uint32_t state) { return static_cast<StateId>(offset + state); };
    grammar_.starts_.push_back(at(0));
    for (const RuleAutomaton::State& made : automaton.states) {
      Grammar::State state;
      state.twin = at(made.twin);
      state.accepts = made.accepts;
      state.bytes_begin = static_cast<uint32_t>(grammar_.byte_edges_.size());
      for (const RuleAutomaton::BytesTo& edge : made.bytes) {
        grammar_.byte_edges_.push_back({edge.first, edge.last, at(edge.to)});
      }
      state.bytes_end = static_cast<uint32_t>(grammar_.byte_edges_.size());
      state.calls_begin = static_cast<uint32_t>(grammar_.call_edges_.size());
      for (const RuleAutomaton::CallTo& edge : made.calls) {
        grammar_.call_edges_.push_back({NumberOf(edge.rule), at(edge.to)});
      }
      state.calls_end = static_cast<uint32_t>(grammar_.call_edges_.size());
      grammar_.states_.push_back(state);
    }
  }

  const GrammarBuilder& drawn_;
  SubsetConstruction construction_;
  std::vector<std::optional<RuleId>> numbers_;  // [number of drawn rules]
  std::vector<RuleId> found_;                   // by their numbers
  Grammar grammar_;
};

absl::StatusOr<Grammar> GrammarBuilder::Finish(RuleId root) && {
  if (full_) {
    return absl::InvalidArgumentError(absl::StrCat("grammar is too large: it takes more than ",
                                                   limits_.nodes, " nodes and edges"));
  }
  const DrawnGraph graph(rule_of_.size(), rules_, edges_);
  if (!graph.is_live(begin(root))) {
    return absl::InvalidArgumentError("grammar can never be satisfied: no text is of its language");
  }
  Assembly assembly(*this, graph);
  absl::StatusOr<Grammar> grammar = assembly.Assemble(root);
  if (!grammar.ok()) return grammar;
  if (const std::vector<RuleId> circle = FindLeftRecursion(*grammar); !circle.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammar recurses without end: ", assembly.NameOf(circle),
                     " calls itself before a byte was read"));
  }
  const std::vector<Grammar::Digest> digests = MakeStateDigests(*grammar);
  for (size_t state = 0; state < digests.size(); ++state) {
    grammar->states_[state].digest = digests[state];
  }
  return grammar;
}

}  // namespace refrain::engine
