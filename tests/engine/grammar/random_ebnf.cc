#include "tests/engine/grammar/random_ebnf.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace refrain::testing {
namespace {

constexpr const char* kNames[] = {"root", "x", "rule-2", "B_3"};
// Of the alphabet that texts are of: one byte, two, and three.
constexpr const char* kCharacters[] = {"a", "b", "\xC3\xA9", "\n"};

// The character that begins there.
std::string CharacterAt(const std::string& text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return text.substr(at, end - at);
}

}  // namespace

RandomEbnf::RandomEbnf(std::mt19937* random) : random_(random) {
  const auto count = static_cast<size_t>(1 + Below(4));
  rules_.resize(count, {Kind::kSequence});  // so that calls know how many there are
  for (Part& rule : rules_) rule = RandomAlternatives(2);
  may_be_empty_.resize(count);
  for (size_t round = 0; round < count; ++round) {
    for (size_t i = 0; i < count; ++i) may_be_empty_[i] = MayBeEmpty(rules_[i]);
  }
}

// --- drawing lots ---

RandomEbnf::Part RandomEbnf::RandomAlternatives(int depth) {
  Part part{Kind::kAlternatives};
  do part.parts.push_back(RandomSequence(depth));
  while (Below(5) < 2);
  return part;
}

RandomEbnf::Part RandomEbnf::RandomSequence(int depth) {
  Part part{Kind::kSequence};
  for (int i = Below(8) == 0 ? 0 : 1 + Below(3); i > 0; --i) {
    part.parts.push_back(Below(3) == 0 ? RandomRepetition(depth) : RandomPart(depth));
  }
  return part;
}

RandomEbnf::Part RandomEbnf::RandomRepetition(int depth) {
  Part part{Kind::kRepetition};
  part.min = Below(3);
  if (Below(2) == 0) part.max = part.min + Below(3);
  part.parts.push_back(RandomPart(depth));
  // So many are drawn as calls, where they are of more than one byte.
  if (part.parts[0].kind == Kind::kClass && Below(5) == 0) part.max = part.min + 18;
  return part;
}

RandomEbnf::Part RandomEbnf::RandomPart(int depth) {
  if (depth > 0 && Below(4) == 0) return RandomAlternatives(depth - 1);
  if (Below(3) == 0) {
    Part call{Kind::kCall};
    call.rule = static_cast<size_t>(Below(static_cast<int>(rules_.size())));
    return call;
  }
  if (Below(3) == 0) {
    Part characters{Kind::kClass};
    characters.is_negated = Below(4) == 0;
    for (int i = 1 + Below(2); i > 0; --i) characters.texts.push_back(kCharacters[Below(4)]);
    return characters;
  }
  Part literal{Kind::kText, {""}};
  for (int i = Below(6) == 0 ? 0 : 1 + Below(2); i > 0; --i) {
    literal.texts[0] += kCharacters[Below(4)];
  }
  return literal;
}

// --- writing ---

std::string RandomEbnf::Space(bool may_end_line) {
  constexpr const char* kSpaces[] = {" ", "  ", "\t", " ", "\n", "\r\n ", " # x ::= \"\n", "\n\n"};
  return kSpaces[Below(may_end_line ? 8 : 4)];
}

std::string RandomEbnf::WrittenText(const std::string& text) {
  std::string written;
  for (size_t at = 0; at < text.size(); at += CharacterAt(text, at).size()) {
    const std::string character = CharacterAt(text, at);
    if (character == "\n") {
      written += Below(2) == 0 ? "\\n" : "\\x0a";
    } else if (character == "a" && Below(4) == 0) {
      written += Below(2) == 0 ? "\\u0061" : "\\U00000061";
    } else {
      written += character;
    }
  }
  return written;
}

std::string RandomEbnf::WrittenQuantifier(const Part& part) {
  if (!part.max.has_value()) {
    if (part.min == 0) return "*";
    return part.min == 1 ? "+" : "{" + std::to_string(part.min) + ",}";
  }
  if (part.min == 0 && part.max == 1) return "?";
  if (part.min == part.max) return "{" + std::to_string(part.min) + "}";
  return "{" + (part.min == 0 ? "" : std::to_string(part.min)) + "," + std::to_string(*part.max) +
         "}";
}

// Line ends may be anywhere.
std::string RandomEbnf::WrittenPart(const Part& part, bool is_inside) {
  switch (part.kind) {
    case Kind::kText:
      return "\"" + WrittenText(part.texts[0]) + "\"";
    case Kind::kClass: {
      std::string written = part.is_negated ? "[^" : "[";
      for (const std::string& character : part.texts) written += WrittenText(character);
      return written + "]";
    }
    case Kind::kCall:
      return kNames[part.rule];
    case Kind::kRepetition:
      return WrittenPart(part.parts[0], true) + WrittenQuantifier(part);
    case Kind::kSequence: {
      std::string written;
      for (const Part& one : part.parts) written += WrittenPart(one, true) + Space(true);
      return written;
    }
    case Kind::kAlternatives: {
      std::string written = WrittenPart(part.parts[0], true);
      for (size_t i = 1; i < part.parts.size(); ++i) {
        written += "|" + Space(true) + WrittenPart(part.parts[i], true);
      }
      return is_inside ? "(" + written + ")" : written;
    }
  }
  return "";
}

std::string RandomEbnf::Written() {
  std::string written = Below(2) == 0 ? "" : "# A grammar.\n";
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    written += kNames[rule] + Space(false) + "::=" + Space(true) +
               WrittenPart(rules_[rule], /*is_inside=*/false) + "\n";
  }
  return written;
}

// --- which texts it has ---

std::set<size_t> RandomEbnf::EndsOf(const Part& part, size_t begin, const std::string& text,
                                    const Ends& ends) const {
  switch (part.kind) {
    case Kind::kText:
      if (text.compare(begin, part.texts[0].size(), part.texts[0]) != 0) return {};
      return {begin + part.texts[0].size()};
    case Kind::kClass: {
      if (begin == text.size()) return {};
      const std::string character = CharacterAt(text, begin);
      const bool is_there =
          std::find(part.texts.begin(), part.texts.end(), character) != part.texts.end();
      if (is_there == part.is_negated) return {};
      return {begin + character.size()};
    }
    case Kind::kCall:
      return ends[part.rule][begin];
    case Kind::kSequence: {
      std::set<size_t> at = {begin};
      for (const Part& one : part.parts) {
        std::set<size_t> behind;
        for (const size_t place : at) behind.merge(EndsOf(one, place, text, ends));
        at = std::move(behind);
      }
      return at;
    }
    case Kind::kAlternatives: {
      std::set<size_t> at;
      for (const Part& one : part.parts) at.merge(EndsOf(one, begin, text, ends));
      return at;
    }
    case Kind::kRepetition: {
      // More rounds than the text has bytes come to no other place.
      const int most = part.max.value_or(part.min + static_cast<int>(text.size()) + 1);
      std::set<size_t> at = {begin}, all;
      for (int i = 0; i <= most; ++i) {
        if (i >= part.min) all.insert(at.begin(), at.end());
        std::set<size_t> behind;
        for (const size_t place : at) behind.merge(EndsOf(part.parts[0], place, text, ends));
        at = std::move(behind);
      }
      return all;
    }
  }
  return {};
}

bool RandomEbnf::Takes(const std::string& text) const {
  Ends ends(rules_.size(), std::vector<std::set<size_t>>(text.size() + 1));
  for (bool changes = true; changes;) {
    changes = false;
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      for (size_t begin = 0; begin <= text.size(); ++begin) {
        std::set<size_t> found = EndsOf(rules_[rule], begin, text, ends);
        changes = changes || found != ends[rule][begin];
        ends[rule][begin] = std::move(found);
      }
    }
  }
  return ends[0][0].contains(text.size());
}

// --- which rules come back to themselves ---

bool RandomEbnf::MayBeEmpty(const Part& part) const {
  const auto may = [this](const Part& one) { return MayBeEmpty(one); };
  switch (part.kind) {
    case Kind::kText:
      return part.texts[0].empty();
    case Kind::kClass:
      return false;
    case Kind::kCall:
      return may_be_empty_[part.rule];
    case Kind::kSequence:
      return std::all_of(part.parts.begin(), part.parts.end(), may);
    case Kind::kAlternatives:
      return std::any_of(part.parts.begin(), part.parts.end(), may);
    case Kind::kRepetition:
      return part.min == 0 || may(part.parts[0]);
  }
  return false;
}

void RandomEbnf::NoteFirst(const Part& part, bool is_plain, FirstCalls* first) const {
  switch (part.kind) {
    case Kind::kText:
    case Kind::kClass:
      return;
    case Kind::kCall:
      if (is_plain && part.rule == first->rule) {
        first->itself = true;
      } else {
        first->called.insert(part.rule);
      }
      return;
    case Kind::kSequence:
      for (const Part& one : part.parts) {
        NoteFirst(one, is_plain, first);
        if (!MayBeEmpty(one)) return;
        is_plain = false;
      }
      return;
    case Kind::kAlternatives:
      for (const Part& one : part.parts) NoteFirst(one, is_plain, first);
      return;
    case Kind::kRepetition:
      if (part.max != 0) NoteFirst(part.parts[0], is_plain && part.max == 1, first);
      return;
  }
}

bool RandomEbnf::HasHiddenLeftRecursion() const {
  std::vector<std::set<size_t>> reached(rules_.size());
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    FirstCalls first{rule, {}};
    NoteFirst(rules_[rule], true, &first);
    reached[rule] = first.called;
  }
  for (size_t round = 0; round < rules_.size(); ++round) {
    for (std::set<size_t>& of_rule : reached) {
      const std::set<size_t> before = of_rule;
      for (const size_t rule : before) of_rule.insert(reached[rule].begin(), reached[rule].end());
    }
  }
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    if (reached[rule].contains(rule)) return true;
  }
  return false;
}

bool RandomEbnf::HasPlainLeftRecursion() const {
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    FirstCalls first{rule, {}};
    NoteFirst(rules_[rule], true, &first);
    if (first.itself) return true;
  }
  return false;
}

}  // namespace refrain::testing
