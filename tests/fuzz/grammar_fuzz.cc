// Two bytes of what kind of form and where it begins, the form's text, a zero byte, and bytes that
// choose tokens: makes the grammar, and follows it through a vocabulary that has every byte.
//
// Whatever the input: there is a grammar, or INVALID_ARGUMENT that begins with the field; what the
// matcher allows is what the grammar takes by the plainest way of following it; what was accepted
// can go on or end, or it is overrun; and what ends as any JSON or by a schema is JSON.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/grammar/grammar_matcher.h"
#include "engine/grammar/output_grammar.h"
#include "engine/text/utf8.h"
#include "tests/engine/grammar/naive_acceptor.h"
#include "tests/support/fake_tokenizer.h"

namespace {

namespace engine = refrain::engine;
using refrain::kvcache::TokenId;
using refrain::testing::NaiveAcceptor;

constexpr std::string_view kField = "the field";
constexpr size_t kMostSteps = 40;
// The oracle keeps every path apart, and copies them for each token that is tried: at some steps.
constexpr size_t kMostNaivePlaces = 20;
constexpr size_t kTrialSteps = 5;

void Demand(bool holds) {
  if (!holds) __builtin_trap();
}

// Every byte, and pieces such as JSON, UTF-8 and tags are made of.
std::vector<std::string> Pieces() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  for (const char* piece : {"{\"",
                            "\": ",
                            "\":",
                            "\", \"",
                            "\"}",
                            "\"]",
                            "}}",
                            "]}",
                            ", ",
                            "[]",
                            "{}",
                            "[[",
                            "[{\"",
                            "true",
                            "false",
                            "null",
                            "tru",
                            "0.",
                            "-1",
                            "12",
                            "00",
                            "1e",
                            "E+",
                            "\\u",
                            "\\\"",
                            "\\n",
                            "\\ud8",
                            "00\\udc",
                            "\n",
                            "\n\n",
                            "  ",
                            " \"",
                            "\r\n",
                            "name",
                            "a",
                            "ab",
                            "aa",
                            "abc",
                            "A1",
                            "2024-",
                            "-01",
                            "T0",
                            ":00",
                            "Z\"",
                            "\xc3\xa9",
                            "\xe2\x82",
                            "\xac",
                            "\xf0\x9f\x98",
                            "\xed\x9f\xbf",
                            "<think>",
                            "</think>",
                            "</thi",
                            "nk>",
                            "<tool_call>",
                            "</tool_call>",
                            "{\"name\": \"",
                            "\", \"arguments\": ",
                            "\", \"parameters\": ",
                            "</s>"}) {
    pieces.emplace_back(piece);
  }
  return pieces;
}

const engine::TokenTrie& Trie() {
  static const engine::TokenTrie* const trie = [] {
    const std::vector<std::string> pieces = Pieces();
    return new engine::TokenTrie(refrain::testing::FakeTokenizer(pieces), pieces.size(), {});
  }();
  return *trie;
}

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (lines.size() < 64) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

// Each tool a line of its name and one of its parameters.
engine::OutputFormat::ToolCalls Calls(std::string_view text, uint8_t kind) {
  engine::OutputFormat::ToolCalls calls;
  calls.several = (kind & 8) != 0;
  const std::vector<std::string> lines = Lines(text);
  for (size_t i = 0; i < lines.size(); i += 2) {
    calls.tools.push_back({lines[i], i + 1 < lines.size() ? lines[i + 1] : "", (kind & 16) == 0});
  }
  return calls;
}

engine::OutputFormat Format(uint8_t kind, std::string_view text) {
  using Format = engine::OutputFormat;
  Format format;
  format.field = kField;
  switch (kind % 8) {
    case 0:
    case 1:
      format.form = Format::JsonSchema{std::string(text)};
      break;
    case 2:
      format.form = Format::Ebnf{std::string(text)};
      break;
    case 3:
      format.form = Format::Regex{std::string(text)};
      break;
    case 4:
      format.form = Format::JsonObject{};
      break;
    case 5:
      format.form = Format::Choice{Lines(text)};
      break;
    case 6:
      format.form = Calls(text, kind);
      break;
    default:
      format.form = Format::JsonObject{};
      format.or_calls = Calls(text, kind);
  }
  return format;
}

engine::OutputPlace Place(uint8_t byte) {
  using Reasoning = engine::ReasoningStart;
  engine::OutputPlace place;
  place.tools = byte & 1 ? engine::ToolFormat::kLlama3 : engine::ToolFormat::kHermes;
  switch (byte >> 1 & 7) {
    case 0:
      place.reasoning = Reasoning::kBefore;
      break;
    case 1:
      place.reasoning = Reasoning::kInside;
      break;
    case 2:
      place.reasoning = Reasoning(Reasoning::kAmid, (byte >> 4) % engine::kThinkClose.size());
      break;
    default:
      place.reasoning = Reasoning::kBehind;
  }
  return place;
}

std::vector<TokenId> Allowed(const engine::GrammarMatcher& matcher) {
  engine::GrammarMatcher copy = matcher;
  engine::TokenSet allowed(Trie().vocab_size());
  copy.FindAllowed(&allowed);
  std::vector<TokenId> tokens;
  allowed.ForEach([&](TokenId token) { tokens.push_back(token); });
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<TokenId> AllowedByTrial(const NaiveAcceptor& naive) {
  std::vector<TokenId> tokens;
  for (const TokenId token : Trie().TokensBelow(0)) {
    NaiveAcceptor trial = naive;
    if (trial.Accept(Trie().BytesOf(token))) tokens.push_back(token);
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

// Returns the output where it came to its end.
std::string Follow(std::shared_ptr<const engine::Grammar> grammar, std::string_view choices) {
  NaiveAcceptor naive(grammar.get());
  bool is_naive = naive.num_places() <= kMostNaivePlaces;
  engine::GrammarMatcher matcher(
      grammar, std::make_shared<engine::MaskStore>(&Trie(), size_t{1} << 20, /*many_nodes=*/20));
  std::string output;
  for (size_t step = 0; step < std::min(kMostSteps, choices.size()); ++step) {
    engine::TokenSet found(Trie().vocab_size());
    matcher.FindAllowed(&found);
    if (matcher.is_overrun()) return "";
    const std::vector<TokenId> allowed = Allowed(matcher);
    if (is_naive && step % kTrialSteps == 0) Demand(allowed == AllowedByTrial(naive));
    if (is_naive) Demand(matcher.CanEnd() == naive.CanEnd());
    Demand(matcher.MustEnd() == (matcher.CanEnd() && allowed.empty()));
    if (allowed.empty()) {
      Demand(matcher.CanEnd());
      return output;
    }
    const TokenId next = allowed[static_cast<uint8_t>(choices[step]) % allowed.size()];
    if (!matcher.AcceptToken(next)) {
      Demand(matcher.is_overrun());
      return "";
    }
    if (is_naive) {
      Demand(naive.Accept(Trie().BytesOf(next)));
      is_naive = naive.num_places() <= kMostNaivePlaces;
    }
    output += Trie().BytesOf(next);
  }
  return matcher.CanEnd() ? output : "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t zero = input.find('\0');
  const std::string_view choices =
      zero == std::string_view::npos ? std::string_view() : input.substr(zero + 1);
  const engine::OutputFormat format = Format(data[0], input.substr(0, zero));
  const engine::OutputPlace place = Place(data[1]);

  absl::StatusOr<engine::Grammar> grammar = engine::MakeOutputGrammar(format, place);
  if (!grammar.ok()) {
    Demand(absl::IsInvalidArgument(grammar.status()));
    const auto message = grammar.status().message();
    Demand(std::string_view(message.data(), message.size()).substr(0, kField.size()) == kField);
    return 0;
  }
  if (!engine::IsValidUtf8(input.substr(0, zero))) return 0;  // front ends let none in
  const std::string output =
      Follow(std::make_shared<const engine::Grammar>(*std::move(grammar)), choices);
  const bool is_json = std::holds_alternative<engine::OutputFormat::JsonObject>(format.form) ||
                       std::holds_alternative<engine::OutputFormat::JsonSchema>(format.form);
  if (is_json && !format.or_calls.has_value() && !output.empty() &&
      place.reasoning == engine::ReasoningStart::kBehind) {
    Demand(nlohmann::json::accept(output));
  }
  return 0;
}
