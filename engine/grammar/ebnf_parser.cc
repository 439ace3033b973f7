#include "engine/grammar/ebnf_parser.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/ebnf_lexer.h"
#include "engine/hash_map.h"

namespace refrain::engine {
namespace {

using Kind = EbnfNode::Kind;
using TokenKind = EbnfToken::Kind;

// What XGrammar calls like a rule, with arguments.
constexpr std::string_view kMacros[] = {"TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch",
                                        "Regex"};

// Descends into parentheses alone, which are bounded. After a failure only kEnd comes, and what it
// returns says nothing.
class Parser {
 public:
  explicit Parser(std::string_view grammar) : lexer_(grammar) {}

  absl::StatusOr<EbnfGrammar> Parse() {
    Advance();
    while (token_.kind != TokenKind::kEnd) ParseRule();
    if (lexer_.status().ok()) CheckRules();
    if (!lexer_.status().ok()) return lexer_.status();
    return std::move(parsed_);
  }

 private:
  // Of a rule, beside what EbnfRule holds.
  struct Mention {
    size_t at;  // byte of the grammar; where it is drawn, once it is
    bool is_defined = false;
  };

  void Advance() { token_ = lexer_.Next(); }
  void Fail(size_t at, std::string_view problem) {
    lexer_.Fail(at, problem);
    token_ = EbnfToken{};
  }

  // --- rules ---

  void ParseRule() {
    const size_t begin = token_.begin;
    if (token_.kind != TokenKind::kRuleName) return FailUnexpectedBesideRules();
    if (!token_.is_first_on_line) {
      return Fail(begin,
                  "expected a line of its own for each rule, which begins with its name: "
                  "letters, digits, '-' and '_'");
    }
    const size_t rule = RuleOf(token_);
    if (mentions_[rule].is_defined) {
      return Fail(begin,
                  absl::StrCat("the rule ", ShownRuleName(token_.text), " is there already, at ",
                               lexer_.PlaceOf(mentions_[rule].at)));
    }
    mentions_[rule] = {begin, true};
    parsed_.rules[rule].line = LineOf(begin);
    Advance();
    EbnfNode body = ParseAlternatives();
    parsed_.rules[rule].body = std::move(body);
    if (token_.kind != TokenKind::kEnd && token_.kind != TokenKind::kRuleName) FailUnexpected();
  }

  size_t RuleOf(const EbnfToken& token) {
    const auto [found, is_new] = rules_.try_emplace(token.text, parsed_.rules.size());
    if (is_new) {
      parsed_.rules.push_back({.name = token.text});
      mentions_.push_back({token.begin});
    }
    return found->second;
  }

  // Of bytes that ascend: all of the grammar is looked at once.
  size_t LineOf(size_t at) {
    for (; counted_ < at; ++counted_) line_ += lexer_.ends_line(counted_) ? 1 : 0;
    return line_;
  }

  void CheckRules() {
    for (size_t rule = 0; rule < mentions_.size(); ++rule) {
      const std::string& name = parsed_.rules[rule].name;
      if (mentions_[rule].is_defined) continue;
      const bool is_macro =
          std::find(std::begin(kMacros), std::end(kMacros), name) != std::end(kMacros);
      Fail(mentions_[rule].at, is_macro
                                   ? absl::StrCat("XGrammar's function ", name, " is not supported")
                                   : absl::StrCat("expected a rule ", ShownRuleName(name),
                                                  " somewhere: none is defined"));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) {
      return Fail(0, "expected a rule 'root' somewhere: it describes the whole text");
    }
    parsed_.root = root->second;
  }

  // --- bodies of rules ---

  EbnfNode ParseAlternatives() {
    EbnfNode alternatives{Kind::kAlternatives};
    while (true) {
      alternatives.parts.push_back(ParseSequence());
      if (token_.kind != TokenKind::kOr) break;
      Advance();
    }
    if (alternatives.parts.size() == 1) return Only(std::move(alternatives));
    return alternatives;
  }

  // It may be empty.
  EbnfNode ParseSequence() {
    EbnfNode sequence{Kind::kSequence};
    while (BeginsPart(token_.kind)) sequence.parts.push_back(ParsePart());
    if (sequence.parts.size() == 1) return Only(std::move(sequence));
    return sequence;
  }

  static EbnfNode Only(EbnfNode whole) {
    EbnfNode part = std::move(whole.parts[0]);
    return part;
  }

  static bool BeginsPart(TokenKind kind) {
    return kind == TokenKind::kLiteral || kind == TokenKind::kCharacters ||
           kind == TokenKind::kName || kind == TokenKind::kOpen;
  }

  EbnfNode ParsePart() {
    EbnfNode part = ParseUnquantified();
    if (token_.kind != TokenKind::kQuantifier) return part;
    EbnfNode repetition{Kind::kRepetition};
    repetition.min = token_.min;
    repetition.max = token_.max;
    repetition.parts.push_back(std::move(part));
    Advance();
    if (token_.kind == TokenKind::kQuantifier) {
      Fail(token_.begin, "a quantifier of a quantifier: expected parentheses around what it is of");
    }
    return repetition;
  }

  EbnfNode ParseUnquantified() {
    if (token_.kind == TokenKind::kOpen) return ParseGroup();
    EbnfNode node{Kind::kLiteral};
    if (token_.kind == TokenKind::kCharacters) {
      node.kind = Kind::kCharacters;
      node.ranges = std::move(token_.ranges);
    } else if (token_.kind == TokenKind::kName) {
      node.kind = Kind::kCall;
      node.rule = RuleOf(token_);
    } else {
      node.text = std::move(token_.text);
    }
    Advance();
    return node;
  }

  EbnfNode ParseGroup() {
    const size_t begin = token_.begin;
    if (++nesting_ > kMostEbnfNesting) {
      Fail(begin, absl::StrCat("parentheses nest deeper than ", kMostEbnfNesting));
      return {Kind::kSequence};
    }
    Advance();
    EbnfNode group = ParseAlternatives();
    --nesting_;
    if (token_.kind == TokenKind::kClose) {
      Advance();
    } else if (token_.kind == TokenKind::kEnd || token_.kind == TokenKind::kRuleName) {
      Fail(begin, "the parenthesis is not closed: expected ')' before the end of the rule");
    } else {
      FailUnexpected();
    }
    return group;
  }

  // --- what is none of it ---

  void FailUnexpected() {
    const std::string& text = token_.text;
    if (text == "<" || text == "!<" || text == "!") {
      return Fail(token_.begin,
                  "tokens (<think>, <[12]>) are not supported: expected their text as a literal");
    }
    if (text == ",") {
      return Fail(token_.begin, "XGrammar's functions, as Token(1, 2), are not supported");
    }
    if (text == "(=") return Fail(token_.begin, "look-ahead, '(=', is not supported");
    if (text == "'") return Fail(token_.begin, "expected '\"': literals stand in double quotes");
    if (text == ":" || text == "=")
      return Fail(token_.begin, "expected '::=' behind a rule's name");
    if (text == "::=") return Fail(token_.begin, "expected a rule's name before '::='");
    if (token_.kind == TokenKind::kClose) {
      return Fail(token_.begin, "this ')' closes nothing");
    }
    if (token_.kind == TokenKind::kQuantifier) {
      return Fail(token_.begin, absl::StrCat("expected something to repeat before '", text, "'"));
    }
    Fail(token_.begin,
         "expected a literal (\"...\"), a class ([...]), '.', a rule's name, '(', '|', a "
         "quantifier, or a line with the next rule");
  }

  // At the begin of the grammar alone: whatever stands behind a rule may be a part of it.
  void FailUnexpectedBesideRules() {
    Fail(token_.begin,
         "expected a rule, 'name ::= ...' (Lark's 'name: ...' and other notations are not "
         "supported)");
  }

  EbnfLexer lexer_;
  EbnfToken token_;
  EbnfGrammar parsed_;
  std::vector<Mention> mentions_;  // [rules]
  HashMap<std::string, size_t> rules_;
  int nesting_ = 0;
  size_t counted_ = 0, line_ = 1;
};

}  // namespace

std::string ShownRuleName(std::string_view name) {
  constexpr size_t kMostShown = 64;
  const bool is_long = name.size() > kMostShown;
  return absl::StrCat("'", std::string(name.substr(0, kMostShown)), is_long ? "...'" : "'");
}

absl::StatusOr<EbnfGrammar> ParseEbnf(std::string_view grammar) {
  if (grammar.size() > kMostEbnfBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammar of ", grammar.size(), " bytes is longer than ", kMostEbnfBytes));
  }
  return Parser(grammar).Parse();
}

}  // namespace refrain::engine
